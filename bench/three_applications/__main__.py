"""Count the lines of the three applications: `python -m bench.three_applications` prints the table of docs/how-to/coming-from.md."""

from __future__ import annotations

import ast
from pathlib import Path

HERE = Path(__file__).resolve().parent
APPLICATIONS = {"triage": "support triage with approvals", "documents": "fan-out over 30 documents", "chat": "chat"}
SYSTEMS = {"heliograph": "Heliograph", "langgraph": "LangGraph", "temporal": "Temporal", "pydantic_ai": "pydantic-ai"}


def lines_of_code(text: str) -> int:
    """The number of lines that are neither empty, nor comments, nor docstrings."""
    tree = ast.parse(text)
    documented = [
        node
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
    ]
    texts = {
        number
        for node in documented
        if ast.get_docstring(node) is not None
        for number in range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)
    }
    return sum(
        1
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and not line.strip().startswith("#") and number not in texts
    )


def count(application: str, system: str) -> int:
    """The lines of one application."""
    return lines_of_code((HERE / f"{application}_{system}.py").read_text(encoding="utf-8"))


def table() -> str:
    """The table of all counts."""
    rows = ["| Application | " + " | ".join(SYSTEMS.values()) + " |", "|---|" + "---:|" * len(SYSTEMS)]
    rows += [
        f"| {title} | " + " | ".join(str(count(name, system)) for system in SYSTEMS) + " |"
        for name, title in APPLICATIONS.items()
    ]
    return "\n".join(rows)


if __name__ == "__main__":
    print(table())
