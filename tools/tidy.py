"""Report files over 400 lines and functions over 60. The report never fails, because a long file is only a hint at a second
idea; a test rejects long functions.

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


def _long_functions(path: Path, text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text, filename=str(path))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                yield f"{path.relative_to(ROOT)}:{node.lineno}: {node.name}() has {lines} lines"


def _texts(*suffixes: str) -> Iterator[tuple[Path, str]]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in suffixes:
                yield path, path.read_text(encoding="utf-8")


def long_files() -> list[str]:
    return [
        f"{path.relative_to(ROOT)}: {lines} lines"
        for path, text in _texts(".py", ".sql")
        if (lines := text.count("\n")) > FILE_LINES_MAX
    ]


def long_functions() -> list[str]:
    return [finding for path, text in _texts(".py") for finding in _long_functions(path, text)]


if __name__ == "__main__":
    print(
        "\n".join(long_files() + long_functions())
        or f"No file over {FILE_LINES_MAX} lines, no function over {FUNCTION_LINES_MAX}."
    )
