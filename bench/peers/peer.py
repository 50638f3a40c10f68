"""The common part of all peers: a database, a client in the measuring process, perhaps a worker in another."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import asyncpg


class Peer:
    """One system under the load (`bench.load.Contender`). Each method that does nothing here is optional.

    has_worker: whether `serve` has to run in a process of its own.
    ended, suspended, finished: queries that count which of the keys in $1 are so; none where the callers' process
    does the work and knows.
    """

    has_worker = True
    ended: str | None = None
    suspended: str | None = None
    finished: str | None = None

    def __init__(self, url: str):
        self.url = url
        self._watch: Any = None

    async def install(self) -> None:
        """Make the schema in the empty database."""

    async def serve(self) -> None:
        """Work until cancelled; print READY once work that is started now would be done."""
        raise NotImplementedError

    async def open(self, callers: int) -> None:
        """Open the client for so many concurrent callers. `super().open` opens the look from outside."""
        self._watch = await asyncpg.connect(self.url)

    async def close(self) -> None:
        await self._watch.close()

    async def start(self, lane: int) -> Any:
        raise NotImplementedError

    async def start_turn(self, lane: int) -> Any:
        raise NotImplementedError

    async def report(self, lane: int, key: Any) -> None:
        raise NotImplementedError

    async def count_ended(self, keys: Sequence[Any]) -> int:
        return await self._count(self.ended, keys)

    async def count_suspended(self, keys: Sequence[Any]) -> int:
        return await self._count(self.suspended, keys)

    async def count_finished(self, keys: Sequence[Any]) -> int:
        return await self._count(self.finished, keys)

    async def _count(self, query: str | None, keys: Sequence[Any]) -> int:
        if query is None:
            return len(keys)
        counted: int = await self._watch.fetchval(query, keys)
        return counted


def ready() -> None:
    """Signal the start to the measuring process, which reads this worker's output."""
    print("READY", flush=True)
    os.dup2(2, 1)  # nobody reads on
