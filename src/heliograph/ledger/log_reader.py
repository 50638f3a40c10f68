"""Read the logs, recordings and claims of runs."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import datetime
from typing import Any

import msgspec

from heliograph.ledger.decoding import decode
from heliograph.ledger.rows import RecordedCommitRow, RecordingRow
from heliograph.ledger.view_reader import ViewReader, where_given
from heliograph.signals.model import Signal, Source

CLAIMS_OF_RUN = """
select turn_id, turn_epoch, signals_emitted from heliograph.lease_overview
 where project_id = $1 and run_id = $2 order by started_at, turn_id, turn_epoch
"""
_RECORDED_BYTES = 16 * 1024 * 1024  # of one page of what was recorded


class LogReader(ViewReader):
    """Queries on the logs, recordings and claims of one project."""

    async def signals(self, run_id: str, after: int = 0, limit: int = 1000) -> list[Signal]:
        """Read at most `limit` signals of a run's log after position `after`, in order."""
        rows = await self._log_rows(run_id, after, limit)
        return [_signal(row) for row in rows]

    async def _log_rows(self, run_id: str, after: int, limit: int) -> list[Any]:
        return await self._database.fetch(
            "select * from heliograph.read_log($1, $2, $3, $4)", self._project, run_id, after, limit
        )

    async def all_signals(self, run_id: str) -> list[Signal]:
        """Read the whole log of a run, page by page."""
        signals: list[Signal] = []
        while page := await self.signals(run_id, signals[-1].seq if signals else 0):
            signals += page
        return signals

    async def signals_with_trust(self, run_id: str) -> tuple[list[Signal], list[int]]:
        """Read the whole log of a run, and the positions of its untrusted signals."""
        signals: list[Signal] = []
        untrusted: list[int] = []
        while rows := await self._log_rows(run_id, signals[-1].seq if signals else 0, 1000):
            signals += map(_signal, rows)
            untrusted += [row["seq"] for row in rows if row["trust"] == "untrusted"]
        return signals, untrusted

    async def recording(self, run_id: str) -> RecordingRow | None:
        """Read the name and the tags of a recorded run; None for any other run."""
        rows = await self._rows(RecordingRow, "recording_overview", "run_id = $2", run_id)
        return rows[0] if rows else None

    async def recordings(
        self, name: str | None = None, tag: str | None = None, limit: int = 50, *, outcome: str | None = None,
        target: str | None = None, since: datetime | None = None,
    ) -> list[RecordingRow]:  # fmt: skip
        """Read the newest recordings, the newest first. tag: one of theirs. outcome, target, since: as for `runs`.

        A condition that is left out lets the plan use the index for another one.
        """
        where, values = where_given(
            {
                "name = ": name,
                "outcome = ": outcome,
                "target = ": target,
                "started_at >= ": since,
                "tags @> ": tag and [tag],
            }
        )
        return await self._rows(
            RecordingRow, "recording_overview", where, *values, order="started_at desc, run_id desc", limit=limit
        )

    async def recorded_commits(self, run_id: str) -> AsyncGenerator[RecordedCommitRow, None]:
        """Yield what the commits of a run have recorded, in the order of its log; of a fork, with the log that it shares."""
        after = 0
        while rows := await self._database.fetch(
            "select * from heliograph.read_recorded($1, $2, $3, $4, $5)",
            self._project,
            run_id,
            after,
            1000,
            _RECORDED_BYTES,
        ):
            for row in rows:
                yield msgspec.convert(dict(row), RecordedCommitRow)
            after = rows[-1]["seq"]

    async def claims_of_run(self, run_id: str) -> list[tuple[str, int, int]]:
        """Read the claims of all turns of a run, as (turn, epoch, signals before its end), the oldest first."""
        rows = await self._database.fetch(CLAIMS_OF_RUN, self._project, run_id)
        return [(row["turn_id"], row["turn_epoch"], row["signals_emitted"]) for row in rows]


def _signal(row: Any) -> Signal:
    source = Source(row["agent"], row["parent"]) if row["agent"] or row["parent"] else None
    return Signal(id=row["id"], name=row["name"], payload=decode(row["payload"]), timestamp=row["timestamp"],
                  source=source, run_id=row["run_id"], seq=row["seq"], turn_id=row["turn_id"])  # fmt: skip
