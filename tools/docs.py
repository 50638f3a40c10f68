"""Regenerate the parts of docs/ and README.md that come from the code or from kept figures: signals, errors, states, kernel functions, times.

    python -m tools.docs            write them again
    python -m tools.docs --check    fail when one is stale

A part is a run of lines without a blank line. The script finds it by its first line, which never changes, so the pages
need no markers and the text around a part can be edited freely.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pglast.parser import parse_sql_json

from heliograph.codes import CODES, REASONS, RUN_CODES
from heliograph.errors import HeliographError
from heliograph.ledger.install import migrations
from heliograph.ledger.sqlstates import REJECTIONS
from heliograph.manifest.unsupported_inputs import rows as unsupported_inputs
from heliograph.signals.catalog import CATALOG, Shape
from tools.kernel_reference import render_kernel
from tools.speed_tables import render_budget, render_calls, render_latencies, render_rates, render_targets

DOCS = Path(__file__).resolve().parent.parent / "docs"


def render_catalog() -> str:
    """The standard signals."""
    lines = ["| Signal | Payload | Emitted by | Meaning | Source |", "|---|---|---|---|---|"]
    for entry in CATALOG:
        name, payload = entry.name.replace("*", "<key>"), shape_text(entry.payload)
        lines.append(f"| `{name}` | `{payload}` | {entry.emitter} | {entry.meaning} | {entry.source} |")
    return "\n".join(lines) + "\n"


def shape_text(shape: Shape) -> str:
    """A shape in one line: `{agent: string, error{code: string}, message?: string}`."""
    parts = (
        f"{key}: {expected}" if isinstance(expected, str) else f"{key}{shape_text(expected)}"
        for key, expected in shape.items()
    )
    return "{" + ", ".join(parts) + "}"


def render_errors() -> str:
    """Render the exception tree as a table, each class below its base."""
    lines = ["| Error | Default code | `recoverable` by default | `helio` exit code |", "|---|---|---|---:|"]
    for depth, error in descendants(HeliographError):
        name = "&nbsp;&nbsp;" * depth + f"`{error.__name__}`"
        lines.append(
            f"| {name} | `{error.default_code}` | {'yes' if error.recoverable else 'no'} | {error.exit_code} |"
        )
    return "\n".join(lines) + "\n"


def descendants(error: type[HeliographError], depth: int = 0) -> Iterator[tuple[int, type[HeliographError]]]:
    yield depth, error
    for below in error.__subclasses__():
        if below.__module__ == HeliographError.__module__:
            yield from descendants(below, depth + 1)


def render_codes() -> str:
    """Render the codes with which a turn or a call can end."""
    lines = ["| Code | In phase | Retryable | Meaning |", "|---|---|---|---|"]
    lines += [f"| `{c.code}` | {c.phase} | {'yes' if c.recoverable else 'no'} | {c.meaning} |" for c in CODES]
    return "\n".join(lines) + "\n"


def render_run_codes() -> str:
    """Render the codes with which a run can end."""
    return (
        "\n".join(["| Code of a run | Meaning |", "|---|---|", *(f"| `{c}` | {meaning} |" for c, meaning in RUN_CODES)])
        + "\n"
    )


def render_reasons() -> str:
    """Render the reasons that Heliograph itself records for a stop."""
    return "\n".join(["| Reason | Recorded if |", "|---|---|", *(f"| `{r}` | {when} |" for r, when in REASONS)]) + "\n"


def render_sqlstates() -> str:
    """Render the SQLSTATEs with which a kernel function rejects a call."""
    lines = ["| SQLSTATE | Code | Meaning |", "|---|---|---|"]
    lines += [f"| `{state}` | `{code}` | {meaning} |" for state, (code, meaning) in REJECTIONS.items()]
    return "\n".join(lines) + "\n"


def render_unsupported_inputs() -> str:
    """Render the inputs that the schemas of manifests allow and Heliograph does not carry out."""
    lines = ["| Kind | Input that is not carried out | Result |", "|---|---|---|"]
    return (
        "\n".join([*lines, *(f"| {kind} | {given} | {result} |" for kind, given, result in unsupported_inputs())])
        + "\n"
    )


def render_moves() -> str:
    """Render the moves of an agent's status as a table, from the rows of head_transitions in the migrations."""
    lines = ["| Move | From | To | Epoch | By | What it means |", "|---|---|---|---|---|---|"]
    for move, before, after, step, by, note in head_transitions():
        functions = ", ".join(f"`{function}`" for function in by.split(", "))
        lines.append(f"| {move} | {before} | {after} | {'+ 1' if step else 'unchanged'} | {functions} | {note} |")
    return "\n".join(lines) + "\n"


def head_transitions() -> list[list[Any]]:
    """Return the rows of the migrations: move, from, to, epoch step, by, note. A later migration may replace a row."""
    rows: dict[tuple[str, str], list[Any]] = {}
    for migration in migrations():
        for entry in json.loads(parse_sql_json(migration.sql))["stmts"]:
            insert = entry["stmt"].get("InsertStmt")
            if insert is not None and insert["relation"]["relname"] == "head_transitions":
                for values in insert["selectStmt"]["SelectStmt"]["valuesLists"]:
                    row = [constant(value["A_Const"]) for value in values["List"]["items"]]
                    rows[row[0], row[1]] = row
    return list(rows.values())


def constant(node: dict[str, Any]) -> Any:
    """Return the string or number of a constant in a syntax tree, which omits zeros."""
    return node["sval"]["sval"] if "sval" in node else node["ival"].get("ival", 0)


def render_figures() -> str:
    """Render the CPU time of works A and B at 16 callers beside that of other systems, from the kept run of `make bench`."""
    rows = json.loads((DOCS.parent / "bench" / "results" / "reference.json").read_text(encoding="utf-8"))["rows"]
    spent = {
        (row["work"], row["name"]): row["figures"]["CPU µs"]["median"] for row in rows if row["load"] == "16 callers"
    }
    names = {
        "heliograph": "Heliograph",
        "DBOS, direct": "DBOS",
        "LangGraph, sync": "LangGraph",
        "Absurd, 20 ms poll": "Absurd",
    }
    lines = ["| CPU time | " + " | ".join(names.values()) + " |", "|---|" + "---:|" * len(names)]
    for work, text in (("A", "a durable job"), ("B", "a durable turn with a call that suspends it")):
        lines.append(f"| {text} | " + " | ".join(f"{spent[work, name]:,.0f} µs" for name in names) + " |")
    return "\n".join(lines) + "\n"


PARTS: tuple[tuple[str, Callable[[], str]], ...] = (
    ("../README.md", render_figures),
    ("reference/signals.md", render_catalog),
    ("reference/errors.md", render_errors),
    ("reference/errors.md", render_codes),
    ("reference/errors.md", render_run_codes),
    ("reference/errors.md", render_reasons),
    ("reference/errors.md", render_sqlstates),
    ("internals/states.md", render_moves),
    ("internals/proof.md", render_rates),
    ("internals/proof.md", render_targets),
    ("internals/proof.md", render_budget),
    ("internals/proof.md", render_latencies),
    ("internals/proof.md", render_calls),
    ("reference/kernel.md", render_kernel),
    ("reference/manifests.md", render_unsupported_inputs),
)


def renewed(page: str, part: str) -> str:
    """Replace the run of lines in `page` that starts like `part`. Raises LookupError if there is none."""
    first = part.partition("\n")[0] + "\n"
    old = re.search(rf"^{re.escape(first)}(?:.+\n)*", page, re.MULTILINE)
    if old is None:
        raise LookupError(first)
    return page[: old.start()] + part + page[old.end() :]


def main() -> int:
    stale = []
    for name, render in PARTS:
        path = DOCS / name
        before = path.read_text(encoding="utf-8")
        after = renewed(before, render())
        if after != before:
            stale.append(path.resolve().relative_to(DOCS.parent).as_posix())
            if "--check" not in sys.argv[1:]:
                path.write_text(after, encoding="utf-8")
    if stale and "--check" in sys.argv[1:]:
        print(f"Stale: {', '.join(stale)}. Next: `make docs`, and commit the result.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
