"""`helio worker list`: list the workers with their health; with --check, probe them."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from collections.abc import Sequence
from datetime import timedelta

from heliograph.cli.existing_database import open_existing
from heliograph.cli.output import duration, json_line, note, table, width
from heliograph.error_text import safe_repr
from heliograph.errors import NotFound
from heliograph.ledger.rows import WorkerRow

_ALIVE = ("healthy", "degraded")
_NAMES_WIDTH = 40
_WARNINGS_WIDTH = 100


def list_workers(options: Namespace) -> int:
    """Print the workers. Returns 0, also for an empty list; with --check, 1 unless one of them is healthy or degraded."""
    rows = [
        row
        for row in asyncio.run(_list(options.name, "worker" if options.check else None))
        if options.app in (None, *row.capabilities) and options.health in (None, row.health)
    ]
    for row in rows if options.json else ():
        json_line("worker", row)
    if rows and not options.json:
        table(
            ("WORKER", "HEALTH", "LAST BEAT", "PHASE", "TURNS", "SERVES", "POOLS", "WARNINGS"),
            [_cells(row) for row in rows],
        )
    if options.check:
        return _check(rows, options.name)
    if not rows and not options.json:
        which = "no workers" if options.app is options.health is None else "no such workers"
        note(f"{which}; helio worker FILE.py:app starts one")
    return 0


def warning_of(rows: Sequence[WorkerRow]) -> str | None:
    """A line about the workers that need attention; None if there are none."""
    found = [
        f"{row.worker} is {row.health}, {last_beat(row)}" for row in rows if row.health in ("unhealthy", "degraded")
    ]
    if not found:
        return None
    more = f", and {len(found) - 3} more" if len(found) > 3 else ""
    return f"{'; '.join(found[:3])}{more}; helio worker list lists all"


def last_beat(row: WorkerRow) -> str:
    """How long ago the last heartbeat was, and how many are missing since."""
    ago = f"{duration(timedelta(seconds=row.age_seconds))} ago"
    return ago if not row.missed else f"{ago}, {row.missed} missed"


async def _list(label: str | None, wanted: str | None) -> list[WorkerRow]:
    async with open_existing(wanted) as reader:
        return await reader.workers(label)


def _check(rows: Sequence[WorkerRow], label: str | None) -> int:
    """Return the exit code of a probe. Raises NotFound (`unknown_worker`) if there is no worker to check."""
    if not rows:
        which = "worker" if label is None else f"worker named {safe_repr(label)}"
        raise NotFound(f"no {which} is registered; helio worker FILE.py:app starts one", code="unknown_worker")
    return 0 if any(row.health in _ALIVE for row in rows) else 1


def _cells(row: WorkerRow) -> tuple[str, ...]:
    apps = [name for name in row.capabilities if "/" not in name]
    return (safe_repr(row.worker), row.health, last_beat(row), row.phase, f"{row.slots_used}/{row.slots}",
            safe_repr(", ".join(apps) or "-", width(_NAMES_WIDTH)), safe_repr(", ".join(row.pools), width(_NAMES_WIDTH)),
            safe_repr("; ".join(row.warnings) or "-", width(_WARNINGS_WIDTH)))  # fmt: skip
