"""Keep a few connections of a pool between statements: to return one to the pool and to take it again costs more than to send a statement.

asyncpg checks, resets and shields each return, in a task of its own. A connection that has run a single statement to its end has nothing to reset. All
other connections return to the pool at once. The kept ones return once a minute, so that the pool can close those that are unused, or have run many statements.
"""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg

KEPT_MAX = 2  # as many as a coalescer has lanes
KEPT_SECONDS = 60.0


class KeptConnections:
    """Run statements on the connections of a pool, and keep up to `KEPT_MAX` of them for the next statements."""

    def __init__(self, pool: asyncpg.Pool[Any]):
        self._pool = pool
        self._kept: list[Any] = []  # the last one was used last
        self._waiting = 0  # callers that wait for a connection of the pool
        self._is_closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._returning: asyncio.Task[None] | None = None

    async def fetch(self, query: str, *args: object) -> list[asyncpg.Record]:
        """Run one statement in a transaction of its own, and return its rows."""
        connection = await self.acquire()
        try:
            rows: list[asyncpg.Record] = await connection.fetch(query, *args)
        except BaseException:  # after a cancellation the pool waits for the end of the statement
            await self._pool.release(connection)
            raise
        if self._waiting or self._is_closed or len(self._kept) == KEPT_MAX:
            await self._pool.release(connection)
        else:
            self._keep(connection)
        return rows

    async def acquire(self) -> Any:
        """Take a kept connection, or one of the pool. The caller may use it in any way, and returns it to the pool."""
        while self._kept:
            connection = self._kept.pop()
            if _is_open(connection):
                return connection
            await self._pool.release(connection)
        self._waiting += 1
        try:
            return await self._pool.acquire()
        finally:
            self._waiting -= 1

    async def close(self) -> None:
        """Return the kept connections, and keep no others."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        await self._return()
        if self._returning is not None:
            await self._returning

    def _keep(self, connection: Any) -> None:
        self._kept.append(connection)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(KEPT_SECONDS, self._return_later)

    def _return_later(self) -> None:
        self._timer = None
        self._returning = asyncio.create_task(self._return(), name="ledger returns connections")

    async def _return(self) -> None:
        while self._kept:
            await self._pool.release(self._kept.pop())


def _is_open(connection: Any) -> bool:
    try:
        return not connection.is_closed()
    except asyncpg.InterfaceError:  # the driver has returned it, because the server closed it
        return False
