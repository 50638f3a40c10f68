"""Install a mutant in a database: replace the functions that it changes, and restore them afterwards."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from heliograph.testing.kernel.backend import PostgresBackend
from heliograph.testing.mutants.catalog import Mutant
from heliograph.testing.mutants.sql_replacements import REPLACED

_DEFINITIONS = """
select p.oid::regprocedure::text as name, pg_get_functiondef(p.oid) as definition
  from pg_proc p where p.pronamespace = 'heliograph'::regnamespace
"""


@contextmanager
def installed(mutant: Mutant, backend: PostgresBackend) -> Iterator[PostgresBackend]:
    """Install this mutant in the backend until the context ends."""
    originals = backend.run(lambda connection: install_mutant(connection, mutant))
    try:
        yield backend
    finally:
        backend.run(lambda connection: connection.execute(";\n".join(originals)))


async def install_mutant(connection: Any, mutant: Mutant) -> Sequence[str]:
    """Replace the functions that the mutant changes; return their original definitions.

    Raises ValueError when a replaced text is not in exactly one place of the kernel.
    """
    kernel = {row["name"]: row["definition"] for row in await connection.fetch(_DEFINITIONS)}
    changed = dict(kernel)
    for old, new in REPLACED[mutant.name]:
        name = _find(mutant, old, changed)
        changed[name] = new.join(_pattern(old).split(changed[name]))
    names = [name for name in kernel if kernel[name] != changed[name]]
    await connection.execute(";\n".join(changed[name] for name in names))
    return [kernel[name] for name in names]


def _find(mutant: Mutant, text: str, functions: dict[str, str]) -> str:
    """The function that contains the text exactly once."""
    pattern = _pattern(text)
    found = [name for name, definition in functions.items() for _ in pattern.findall(definition)]
    if len(found) != 1:
        raise ValueError(
            f"mutant {mutant.name}: the kernel contains this text {len(found)} times ({', '.join(found) or 'nowhere'}), "
            f"not once: {text!r}; update sql_replacements.py"
        )
    return found[0]


def _pattern(text: str) -> re.Pattern[str]:
    """A pattern of the text with any line breaks."""
    return re.compile(r"\s+".join(re.escape(word) for word in text.split()))
