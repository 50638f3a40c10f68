"""The base class of peers: a database, a client in the measuring process, and for some a worker in another."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import asyncpg

from bench.load import WATCH


class Peer:
    """One peer under the load (`bench.load.Contender`). Methods that do nothing here are optional.

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
        """Create the schema in the empty database."""

    async def serve(self) -> None:
        """Work until cancelled; print READY once the worker accepts work."""
        raise NotImplementedError

    async def open(self, callers: int) -> None:
        """Open the client for this many concurrent callers. `super().open` opens the connection that observes results."""
        self._watch = await asyncpg.connect(self.url, server_settings=WATCH)

    async def close(self) -> None:
        await self._watch.close()

    async def start(self, lane: int) -> Any:
        raise NotImplementedError

    async def start_agents(self, work: str) -> Any:
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
    """Print READY, for which the measuring process waits."""
    print("READY", flush=True)
    os.dup2(2, 1)  # nobody reads on
