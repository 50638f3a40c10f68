"""Read what a fork shares of a run: the log up to one of its commits, from the nearest checkpoint on (decision 0082)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from heliograph.ids import signal_id
from heliograph.ledger.pool import Database
from heliograph.records import Checkpoint
from heliograph.signals.model import LogEntry
from heliograph.turn.drafts import parent_id


class SharedPrefix(msgspec.Struct, frozen=True):
    """The log of a run up to the end of one commit.

    run_id, seq, commit_seq, recorded_at: the run that recorded the commit, its last and its first position, and its time. checkpoint:
    where `entries` begin; None if they are the whole log. open_entries: the activations that were in progress there.
    """

    run_id: str
    seq: int
    commit_seq: int
    recorded_at: datetime
    checkpoint: Checkpoint | None
    open_entries: list[LogEntry]
    entries: list[LogEntry]


class ForkReader:
    """Queries on the logs of one project, for forks."""

    def __init__(self, database: Database, project: str):
        self._database = database
        self._project = project

    async def shared_prefix(self, run_id: str, seq: int, names: Sequence[str] | None) -> SharedPrefix | None:
        """Read the log up to the end of the commit with position `seq`; None for a position that the log does not have.

        names: of the signals that are needed beside those that the runtime emits and the pending ones; None: all.
        """
        answer = await self._page(run_id, seq, names, None)
        if answer is None:
            return None
        try:
            checkpoint = msgspec.convert(answer["checkpoint"], Checkpoint | None)
        except msgspec.ValidationError:  # of a damaged memory, which a worker has written
            answer, checkpoint = await self._page(run_id, seq, names, 0), None
        entries = list(map(_entry, answer["entries"]))
        opened = 0 if checkpoint is None else sum(entry.seq <= checkpoint.seq for entry in entries)
        page = answer
        while page["next"] is not None:
            page = await self._page(run_id, seq, names, page["next"])
            entries += map(_entry, page["entries"])
        return SharedPrefix(answer["run_id"], answer["seq"], answer["commit_seq"], datetime.fromisoformat(answer["recorded_at"]),
                          checkpoint, entries[:opened], entries[opened:])  # fmt: skip

    async def first_failure(self, run_id: str) -> int | None:
        """Read the first position of the commit in which the first turn of a run failed; None if none did."""
        found: int | None = await self._database.call("first_failure", self._project, run_id)
        return found

    async def _page(self, run_id: str, seq: int, names: Sequence[str] | None, after: int | None) -> Any:
        return await self._database.call("read_shared_log", self._project, run_id, seq, names, after)


def _entry(row: list[Any]) -> LogEntry:
    run_id, commit_seq, index, entry = row
    return LogEntry(
        signal_id(run_id, commit_seq + index), run_id, commit_seq + index, commit_seq, entry["name"], entry.get("payload", {}),
        entry.get("agent"), parent_id(run_id, commit_seq, entry.get("parent")),
        is_untrusted=entry.get("trust") == "untrusted", is_deferred=entry.get("is_pending") is True,
    )  # fmt: skip
