"""The ledger: the kernel's functions under their own names, with typed rows.

Every method is one kernel call; those that a turn or a caller waits for share it
with others of their kind (`coalesce.py`). A call whose reply was lost is tried again as
long as the kernel answers the second one harmlessly (kernel.md section 3, the
retry table); `claim` is not tried again: the lease gives back what it took.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from heliograph.errors import StoreUnavailable
from heliograph.ledger.coalesce import Coalescer
from heliograph.records import Claimed, Event, OwedRun, Written
from heliograph.world import World

T = TypeVar("T")

_RETRIES = 4
_PATIENT_RETRIES = 18  # half a minute: as long as the lease may hold, the work that was done is not lost
_FIRST_DELAY_SECONDS = 0.05
_DELAY_SECONDS_MAX = 2.0


class Ledger:
    """One project's ledger, seen through a world."""

    def __init__(self, world: World, project: str):
        self.world = world
        self.project = project
        self._starts = Coalescer(world, "start_runs", self._start)
        self._appends = Coalescer(world, "append", self._append)
        self._endings = Coalescer(world, "finish", self._finish)

    async def start_runs(self, runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """See start_runs in 31_start.sql; answers in the order of `runs`, and rings what it woke."""
        return [await self._starts.call(runs[0])] if len(runs) == 1 else await self._start(list(runs))

    async def enqueue(self, messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """See enqueue in 32_enqueue.sql; rings what it woke."""
        return await self._write("enqueue", list(messages))

    async def claim(
        self, targets: Sequence[str | dict[str, Any]], worker: str, limit: int, lease_seconds: float
    ) -> list[Claimed]:
        """`targets`: names, or narrowed as {target, agents, run_id}; see claim in 40_claim.sql."""
        rows = await self.world.call("claim", self.project, list(targets), worker, limit, lease_seconds)
        return msgspec.convert(rows, list[Claimed])

    async def renew(self, items: Sequence[dict[str, Any]], lease_seconds: float) -> list[Written]:
        rows = await self._retried("renew", list(items), lease_seconds)
        return msgspec.convert(rows, list[Written])

    async def append(self, item: dict[str, Any]) -> Written:
        return await self._appends.call(item)

    async def finish(self, item: dict[str, Any]) -> Written:
        return await self._endings.call(item)

    async def react(self, item: dict[str, Any]) -> str:
        """Answers 'ok' or 'conflict'."""
        rows = await self._write("react", [item])
        return str(rows[0]["outcome"])

    async def sweep_leases(self, limit: int = 100) -> dict[str, Any]:
        return await self._swept("sweep_leases", limit)

    async def sweep_expired(self, limit: int = 100) -> dict[str, Any]:
        return await self._swept("sweep_expired", limit)

    async def sweep_queued(self, limit: int = 100) -> dict[str, Any]:
        return await self._swept("sweep_queued", limit)

    async def sweep_bells(self, older_seconds: float) -> None:
        self._ring(await self.world.call("sweep_bells", self.project, older_seconds))

    async def sweep_owed(self, targets: Sequence[str], limit: int = 20) -> list[OwedRun]:
        rows = await self.world.call("sweep_owed", self.project, list(targets), limit)
        return msgspec.convert(rows, list[OwedRun])

    async def read_outbox(self, limit: int = 100) -> list[Event]:
        rows = await self.world.call("read_outbox", self.project, limit)
        return msgspec.convert(rows, list[Event])

    async def mark_published(self, outbox_ids: Sequence[int]) -> None:
        await self.world.call("mark_published", self.project, list(outbox_ids))

    async def _start(self, runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        answers: dict[str, list[dict[str, Any]]] = {}
        for row in await self._write("start_runs", runs):  # by run id: that is the order in which it locks
            answers.setdefault(row["run_id"], []).append(row)
        return [answers[run["run_id"]].pop(0) for run in runs]

    async def _append(self, items: list[dict[str, Any]]) -> list[Written]:
        return msgspec.convert(await self._retried("append", items, retries=_PATIENT_RETRIES), list[Written])

    async def _finish(self, items: list[dict[str, Any]]) -> list[Written]:
        return msgspec.convert(await self._write("finish", items, _PATIENT_RETRIES), list[Written])

    async def _write(self, function: str, items: list[dict[str, Any]], retries: int = _RETRIES) -> list[dict[str, Any]]:
        answer: list[dict[str, Any]] = await self._retried(function, items, retries=retries)
        self._ring(target for row in answer for target in row.get("targets", ()))
        return answer

    async def _swept(self, function: str, limit: int) -> dict[str, Any]:
        answer: dict[str, Any] = await self.world.call(function, self.project, limit)
        self._ring(answer["targets"])
        return answer

    async def _retried(self, function: str, *args: object, retries: int = _RETRIES) -> Any:
        for attempt in range(retries):
            try:
                return await self.world.call(function, self.project, *args)
            except StoreUnavailable:
                await self.world.sleep(min(_FIRST_DELAY_SECONDS * 2**attempt, _DELAY_SECONDS_MAX))
        return await self.world.call(function, self.project, *args)

    def _ring(self, targets: Any) -> None:
        # after the commit, never inside it: NOTIFY in a transaction holds a lock over the flush (kernel.md section 6)
        keys = sorted({f"work:{target}" for target in targets})
        if keys:
            self.world.ring(keys)
