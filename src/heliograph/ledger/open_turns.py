"""Read the open turns of an application, page by page. Nothing is claimed or written."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import msgspec

from heliograph.errors import KernelRejected
from heliograph.ledger.decoding import read_rows
from heliograph.ledger.pool import Database
from heliograph.ledger.result_limits import fitting
from heliograph.ledger.rows import OpenTurnRow

TURNS_PER_PAGE = 100


async def read_open_turns(
    database: Database, project: str, target: str, run_id: str | None = None
) -> AsyncGenerator[OpenTurnRow | UnreadableTurn, None]:
    """Yield the open turns of an application, or of one of its runs. One page is in memory at a time. Raises StoreUnavailable."""
    place: dict[str, Any] | None = {"agent_id": "", "queue_seq": 0}
    while place is not None:
        after = place
        page = await fitting(
            lambda most: database.call("read_open_turns", project, target, run_id, after["agent_id"], after["queue_seq"], most),  # noqa: B023
            TURNS_PER_PAGE,
        )  # fmt: skip
        for row, found in zip(page["turns"], read_rows(page["turns"], OpenTurnRow), strict=True):
            yield unreadable(row, found) if isinstance(found, KernelRejected) else found
        place = page["next"]


class UnreadableTurn(msgspec.Struct, frozen=True):
    """A turn whose records cannot be decoded, or are too large to be read. message: why."""

    run_id: str
    turn_id: str
    agent: str
    message: str


def unreadable(row: Any, problem: KernelRejected) -> UnreadableTurn:
    """The turn of a row that was rejected."""
    claimed = row.get("claimed", {})
    run_id, turn_id, agent = (str(claimed.get(key)) for key in ("run_id", "turn_id", "agent"))
    return UnreadableTurn(run_id, turn_id, agent, row.get("problem", problem.message))
