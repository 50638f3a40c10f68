"""`helio run list`: the newest runs with their progress and outcome."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from datetime import UTC, datetime

import msgspec

from heliograph.cli.existing_database import open_existing
from heliograph.cli.output import ago, duration, json_line, note, started_since, table
from heliograph.ledger.rows import RunRow
from heliograph.signals.payload import with_sorted_keys
from heliograph.types import JsonObject


def list_runs(options: Namespace) -> int:
    rows = asyncio.run(_read(options))
    if options.json:
        for row in rows:
            json_line("run", row_json(row))
    elif rows:
        headers = ("RUN", "APPLICATION", "STATUS", "SIGNALS", "TURNS", "OPEN", "STARTED", "TOOK", "FORKED FROM")
        columns = len(headers) if any(row.forked_from for row in rows) else len(headers) - 1
        table(headers[:columns], [_cells(row)[:columns] for row in rows])
    else:
        note("no runs yet: helio run FILE.py:app starts one")
    return 0


def row_json(row: RunRow) -> JsonObject:
    """The row as JSON, its state with sorted keys."""
    found: JsonObject = msgspec.to_builtins(row)
    return {**found, "state": with_sorted_keys(row.state)}


async def _read(options: Namespace) -> list[RunRow]:
    async with open_existing() as reader:
        return await reader.runs(options.limit, status=options.status, outcome=options.outcome, target=options.app,
                                 since=started_since(options.since))  # fmt: skip


def _cells(row: RunRow) -> tuple[str, ...]:
    took = (row.ended_at or datetime.now(UTC)) - row.created_at
    return (row.run_id, row.target, row.outcome or row.status, str(row.signal_count), str(row.activations),
            str(row.open_turns), ago(row.created_at), duration(took),
            "-" if row.forked_from is None else f"{row.forked_from} at {row.forked_seq}")  # fmt: skip
