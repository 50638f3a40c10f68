"""Read the ended turns of a run, page by page: what the ledger has of a run that nobody recorded."""

from __future__ import annotations

from typing import Any

from heliograph.errors import KernelRejected
from heliograph.ledger.decoding import read_rows
from heliograph.ledger.open_turns import TURNS_PER_PAGE, UnreadableTurn, unreadable
from heliograph.ledger.pool import Database
from heliograph.ledger.result_limits import fitting
from heliograph.ledger.rows import EndedTurnRow


async def read_ended_turns(
    database: Database, project: str, run_id: str
) -> tuple[list[EndedTurnRow | UnreadableTurn], Any]:
    """Return the ended turns of a run in the order of their activations, and the memory of the run. Raises StoreUnavailable."""
    found: list[EndedTurnRow | UnreadableTurn] = []
    memory: Any = None
    place: int | None = 0
    while place is not None:
        after = place
        page = await fitting(
            lambda most: database.call("read_ended_turns", project, run_id, after, most),  # noqa: B023
            TURNS_PER_PAGE,
        )
        for row, turn in zip(page["turns"], read_rows(page["turns"], EndedTurnRow), strict=True):
            found.append(unreadable(row, turn) if isinstance(turn, KernelRejected) else turn)
        memory, place = page["memory"], page["next"]
    return found, memory
