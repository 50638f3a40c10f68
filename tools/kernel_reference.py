"""Render the page of the kernel's public functions: each with its arguments and its comment from the SQL."""

from __future__ import annotations

import re
from pathlib import Path

from tools.sqllint import Function, functions

KERNEL = Path(__file__).resolve().parent.parent / "src" / "heliograph" / "ledger" / "sql" / "kernel"


def render_kernel() -> str:
    """Render one block of SQL without a blank line, so that tools.docs can find and replace it."""
    lines = ["```sql"]
    for path in sorted(KERNEL.glob("*.sql")):
        for function in functions(path.read_text(encoding="utf-8")):
            if not function.name.startswith("_"):
                lines += [f"-- ── {path.name} " + "─" * (60 - len(path.name)), _signature(function)]
                lines += [line.rstrip() for line in function.comment.splitlines()]
    return "\n".join([*lines, "```", ""])


def _signature(function: Function) -> str:
    """Return `heliograph.name(arguments) returns type` on one line."""
    found = re.search(r"create function (heliograph\.\w+\s*\(.*?\))\s*(returns\s+(?:setof\s+|table\s*\(.*?\)|[\w.\[\]]+)(?:[\w.\[\]]+)?)",
                      function.source, re.DOTALL)  # fmt: skip
    if found is None:
        raise LookupError(f"the signature of {function.name} cannot be read")
    return re.sub(r"\s+", " ", f"{found[1]} {found[2]}").replace("( ", "(").replace(" )", ")")
