"""The ledger: the kernel's functions under their own names, with typed rows.

Every method is one kernel call. A call whose reply was lost is tried again as
long as the kernel answers the second one harmlessly (kernel.md section 3, the
retry table); `claim` is not tried again: the lease gives back what it took.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from heliograph.errors import StoreUnavailable
from heliograph.records import Claimed, Event, OwedRun, Written
from heliograph.world import World

T = TypeVar("T")

_RETRIES = 4
_FINISH_RETRIES = 18  # half a minute: as long as the lease may hold, the work that was done is not lost
_FIRST_DELAY_SECONDS = 0.05
_DELAY_SECONDS_MAX = 2.0


class Ledger:
    """One project's ledger, seen through a world."""

    def __init__(self, world: World, project: str):
        self.world = world
        self.project = project

    async def start_runs(self, runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """See start_runs in 31_start.sql; rings what it woke."""
        return await self._write("start_runs", list(runs))

    async def enqueue(self, messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """See enqueue in 32_enqueue.sql; rings what it woke."""
        return await self._write("enqueue", list(messages))

    async def claim(self, targets: Sequence[str], worker: str, limit: int, lease_seconds: float) -> list[Claimed]:
        rows = await self.world.call("claim", self.project, list(targets), worker, limit, lease_seconds)
        return msgspec.convert(rows, list[Claimed])

    async def renew(self, items: Sequence[dict[str, Any]], lease_seconds: float) -> list[Written]:
        rows = await self._retried("renew", list(items), lease_seconds)
        return msgspec.convert(rows, list[Written])

    async def append(self, item: dict[str, Any]) -> Written:
        rows = await self._retried("append", [item])
        return msgspec.convert(rows[0], Written)

    async def finish(self, item: dict[str, Any]) -> Written:
        rows = await self._write("finish", [item], _FINISH_RETRIES)
        return msgspec.convert(rows[0], Written)

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
