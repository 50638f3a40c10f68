"""Write docs/internals/conformance/: for each requirement, the tests that claim to prove it.

    python -m tools.conformance            write the pages
    python -m tools.conformance --check    fail if a page is stale or a mark names an unknown requirement

The input is requirements.tsv (id, statement) and conformance-notes.tsv (id, note) in docs/internals, and each
`@pytest.mark.proves("ID", ...)` below tests/. The marks are read from the syntax tree: nothing is imported or run.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INTERNALS = ROOT / "docs" / "internals"
PAGES = INTERNALS / "conformance"

HEAD = """\
# Conformance

Each family of requirements has a page, which lists the proven requirements, then the open ones. The last column names
the tests: `kernel: finish (3), stop` stands for three tests in `tests/kernel/test_finish.py` and one in
`tests/kernel/test_stop.py`.
`make conformance` writes these pages from the `proves` marks in `tests/`, from
[requirements.tsv](../requirements.tsv) and from [conformance-notes.tsv](../conformance-notes.tsv); `make check` fails
if a page is stale. Each proven requirement has a mutation in `tests/mutations/` that removes its behaviour, and
`make mutations` checks that the named tests then fail.

These tests are of Heliograph only. [The black-box suite](../../how-to/conformance.md) checks what can be seen from outside, of any system.
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
    "G": "Contradictions and gaps in the specifications",
    "K": "Rules of the kernel",
    "S": "Security",
    "P": "Promises beyond the specifications",
}


class BadMark(Exception):
    """A mark, a note or a requirement that cannot be read; the message names its place."""


def read_table(path: Path) -> dict[str, str]:
    """Read a table of two columns below a heading as {id: text}, in order. Raises BadMark on a repeated id."""
    table: dict[str, str] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines()[1:], 2):
        key, tab, text = line.partition("\t")
        if not tab or key in table:
            raise BadMark(f"{path.name}:{number}: expected a new id, a tab and a text, got {line!r}")
        table[key] = text
    return table


def marks(tree: ast.AST, scope: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], ast.Call]]:
    """Yield each call of `....proves(...)` with the names of the class and function that it marks."""
    for node in ast.iter_child_nodes(tree):
        inner = scope
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            inner = (*scope, node.name)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "proves":
            yield scope, node
        yield from marks(node, inner)


def collect(tests: Path) -> dict[str, list[str]]:
    """Return {requirement id: sorted node ids of its tests}. A mark on a class or file counts as that class or file."""
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
    """Escape `text` for a cell of a Markdown table; in backticks only the bar changes."""
    parts = re.split(r"(`[^`]*`)", text.replace("|", r"\|"))
    return "".join(part if part.startswith("`") else re.sub(r"[*<]", r"\\\g<0>", part) for part in parts)


def proofs(nodes: Sequence[str]) -> str:
    """List the test files by folder, with the number of tests if there are several: `kernel: finish (3), stop`."""
    folders: dict[str, list[str]] = {}
    for file, count in sorted(Counter(node.partition("::")[0] for node in nodes).items()):
        path = Path(file).relative_to("tests")
        shown = path.stem.removeprefix("test_") + (f" ({count})" if count > 1 else "")
        folders.setdefault(path.parent.as_posix(), []).append(shown)
    return "; ".join((f"{folder}: " if folder != "." else "") + ", ".join(names) for folder, names in folders.items())


def family_page(
    family: str, requirements: Mapping[str, str], claims: Mapping[str, Sequence[str]], notes: Mapping[str, str]
) -> str:
    """Render the page of one family: proven requirements, open ones, notes. `requirements` are those of the family."""
    lines = [f"# {family}: {FAMILIES[family]}", "", "Generated by `make conformance`. [All families](README.md)"]
    if proven := [each for each in requirements if each in claims]:
        lines += ["", "## Proven", "", "| Id | Statement | Tests |", "|---|---|---|"]
        lines += [f"| {each} | {escape(requirements[each])} | {proofs(claims[each])} |" for each in proven]
    if missing := [each for each in requirements if each not in claims]:
        lines += ["", "## Open", "", "| Id | Statement |", "|---|---|"]
        lines += [f"| {each} | {escape(requirements[each])} |" for each in missing]
    if noted := [each for each in requirements if each in notes]:
        lines += ["", "## Notes", "", *(f"- **{each}**: {escape(notes[each])}" for each in noted)]
    return "\n".join([*lines, ""])


def pages(
    requirements: Mapping[str, str], claims: Mapping[str, Sequence[str]], notes: Mapping[str, str]
) -> dict[str, str]:
    """Render all pages as {file name: text}. Raises BadMark if a claim or a note names an unknown requirement."""
    for identifier in (*claims, *notes):
        if identifier not in requirements:
            where = ", ".join(claims.get(identifier, ["conformance-notes.tsv"]))
            raise BadMark(f"{identifier} is not a requirement of docs/internals/requirements.tsv (named in {where})")
    summary, written = ["| Family | Proven | Open |", "|---|---:|---:|"], dict[str, str]()
    for family, title in FAMILIES.items():
        own = {each: text for each, text in requirements.items() if re.fullmatch(rf"{family}-?\d+", each)}
        proven = sum(each in claims for each in own)
        name = f"{family.lower()}.md"
        summary.append(f"| [{family}: {title}]({name}) | {proven} | {len(own) - proven} |")
        written[name] = family_page(family, own, claims, notes)
    summary.append(f"| all | {len(claims)} | {len(requirements) - len(claims)} |")
    return {"README.md": "\n".join([HEAD, *summary, ""]), **written}


def main() -> int:
    try:
        notes = read_table(INTERNALS / "conformance-notes.tsv")
        written = pages(read_table(INTERNALS / "requirements.tsv"), collect(ROOT / "tests"), notes)
    except BadMark as bad:
        print(f"conformance: {bad}")
        return 1
    PAGES.mkdir(exist_ok=True)
    present = {path.name: path.read_text(encoding="utf-8") for path in PAGES.glob("*.md")}
    if "--check" in sys.argv[1:]:
        if present == written:
            return 0
        print("docs/internals/conformance/ is stale. Next: `make conformance`, and commit the result.")
        return 1
    for name in present.keys() - written.keys():
        (PAGES / name).unlink()
    for name, text in written.items():
        (PAGES / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
