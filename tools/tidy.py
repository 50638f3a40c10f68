"""Report files over 400 lines and functions over 60. It never fails; a long file often holds a second idea.

python -m tools.tidy
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("src", "tests", "examples", "bench", "model", "tools")
FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60


def long_functions(path: Path, text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text, filename=str(path))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                yield f"{path.relative_to(ROOT)}:{node.lineno}: {node.name}() has {lines} lines"


def findings() -> Iterator[str]:
    """Yield a line for each long file and function, in the order of the tree; SQL counts as files only."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix not in {".py", ".sql"}:
                continue
            text = path.read_text(encoding="utf-8")
            if (lines := text.count("\n")) > FILE_LINES_MAX:
                yield f"{path.relative_to(ROOT)}: {lines} lines"
            if path.suffix == ".py":
                yield from long_functions(path, text)


if __name__ == "__main__":
    print("\n".join(findings()) or f"No file over {FILE_LINES_MAX} lines, no function over {FUNCTION_LINES_MAX}.")
