"""Write docs/conformance.md: each requirement, and the tests that claim to prove it.

    python -m tools.conformance            write the page
    python -m tools.conformance --check    fail when the page is stale or a mark names no requirement

Reads docs/requirements.tsv (id, statement), docs/conformance-notes.tsv (id, note) and every
`@pytest.mark.proves("ID", ...)` below tests/, from the syntax tree, so nothing is imported or run.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "conformance.md"

HEAD = """\
# Conformance

Which test proves which requirement. Written by `make conformance` from the `proves` marks in `tests/`, from
`docs/requirements.tsv` and from `docs/conformance-notes.tsv`; `make check` fails when this page is stale.
A requirement that no test claims is **open**. A claim counts because its tests fail once the behaviour is removed: each
claimed requirement has a mutation in `tests/mutations/` that removes it, and `make mutations` runs them all.
"""
FAMILIES = {
    "CTL": "Control signals",
    "ERR": "Error codes",
    "ENV": "Envelope",
    "RTE": "Routing",
    "RET": "Retry",
    "CB": "Circuit breaker",
    "OBS": "Observability",
    "LC": "Lifecycle",
    "SIG": "Signal system",
    "L0": "Turn state machine",
    "G": "Contradictions and gaps, and what we build",
    "K": "Rules of the kernel",
    "S": "Security",
}


class BadMark(Exception):
    """A mark, a note or a requirement that cannot be read; the message says where."""


def read_table(path: Path) -> dict[str, str]:
    """Two columns under one heading line, as id -> text, in the file's order. Raises BadMark on a repeated id."""
    table: dict[str, str] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines()[1:], 2):
        key, tab, text = line.partition("\t")
        if not tab or key in table:
            raise BadMark(f"{path.name}:{number}: expected a new id, a tab and a text, got {line!r}")
        table[key] = text
    return table


def marks(tree: ast.AST, scope: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], ast.Call]]:
    """Every call of `….proves(…)` with the names of the class and function it stands on."""
    for node in ast.iter_child_nodes(tree):
        inner = scope
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            inner = (*scope, node.name)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "proves":
            yield scope, node
        yield from marks(node, inner)


def collect(tests: Path) -> dict[str, list[str]]:
    """Requirement id -> node ids of the tests, sorted; a mark on a class or a file counts as that class or file."""
    claims: dict[str, set[str]] = {}
    for path in sorted(tests.rglob("*.py")):
        where = path.relative_to(tests.parent).as_posix()
        for scope, call in marks(ast.parse(path.read_text(encoding="utf-8"), filename=where)):
            for argument in call.args:
                if not (isinstance(argument, ast.Constant) and isinstance(argument.value, str)):
                    raise BadMark(f"{where}:{call.lineno}: proves() takes ids as plain strings")
                claims.setdefault(argument.value, set()).add("::".join((where, *scope)))
    return {identifier: sorted(nodes) for identifier, nodes in claims.items()}


def escape(text: str) -> str:
    """`text` as a cell of a Markdown table; what stands in backticks stays as it is, but for the bar."""
    parts = re.split(r"(`[^`]*`)", text.replace("|", r"\|"))
    return "".join(part if part.startswith("`") else re.sub(r"[*<]", r"\\\g<0>", part) for part in parts)


def row(identifier: str, statement: str, tests: Sequence[str], note: str | None) -> str:
    shown = [f"`{test}`" for test in tests] or ["**open**"]
    if note is not None:
        shown.append(escape(note))
    return f"| {identifier} | {escape(statement)} | {'<br>'.join(shown)} |"


def page(requirements: Mapping[str, str], claims: Mapping[str, Sequence[str]], notes: Mapping[str, str]) -> str:
    """The whole page. Raises BadMark when a claim or a note names a requirement that does not exist."""
    for identifier in (*claims, *notes):
        if identifier not in requirements:
            where = ", ".join(claims.get(identifier, ["docs/conformance-notes.tsv"]))
            raise BadMark(f"{identifier} is no requirement of docs/requirements.tsv (named in {where})")
    summary, tables = ["| Family | Proven | Open |", "|---|---:|---:|"], list[str]()
    for family, title in FAMILIES.items():
        ids = [each for each in requirements if re.fullmatch(rf"{family}-?\d+", each)]
        proven = sum(each in claims for each in ids)
        summary.append(f"| {family}: {title} | {proven} | {len(ids) - proven} |")
        tables += ["", f"## {family}: {title}", "", "| Id | Statement | Tests |", "|---|---|---|"]
        tables += [row(each, requirements[each], claims.get(each, ()), notes.get(each)) for each in ids]
    summary.append(f"| all | {len(claims)} | {len(requirements) - len(claims)} |")
    return "\n".join([HEAD, *summary, *tables, ""])


def main() -> int:
    docs = ROOT / "docs"
    try:
        notes = read_table(docs / "conformance-notes.tsv")
        text = page(read_table(docs / "requirements.tsv"), collect(ROOT / "tests"), notes)
    except BadMark as bad:
        print(f"conformance: {bad}")
        return 1
    if "--check" in sys.argv[1:]:
        if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text:
            return 0
        print("docs/conformance.md is stale. Next: `make conformance`, and commit the result.")
        return 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
