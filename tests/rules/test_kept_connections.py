"""Statements that follow one another run on a connection that is kept; a connection with something to reset returns to the pool."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from heliograph.ledger import kept_connections
from heliograph.ledger.kept_connections import KEPT_MAX, KeptConnections
from heliograph.ledger.pool import Database


class Connection:
    """A connection of the driver. A statement `wait` ends with `may_end`, and `fail` fails."""

    def __init__(self) -> None:
        self.state = "open"
        self.may_end = asyncio.Event()

    def is_closed(self) -> bool:
        if self.state == "lost":
            raise asyncpg.InterfaceError("connection has been released back to the pool")
        return self.state == "closed"

    async def fetch(self, query: str, *_args: object) -> list[Any]:
        if query == "wait":
            await self.may_end.wait()
        if query == "fail":
            raise asyncpg.UniqueViolationError("a duplicate")
        return [query]


class Pool:
    """A pool of the driver. done: what was asked of it."""

    def __init__(self, size: int):
        self.made: list[Connection] = []
        self.done: list[str] = []
        self._free: asyncio.LifoQueue[Connection] = asyncio.LifoQueue()
        for _ in range(size):
            self.made.append(Connection())
            self._free.put_nowait(self.made[-1])

    async def acquire(self) -> Connection:
        self.done.append("acquire")
        return await self._free.get()

    async def release(self, connection: Connection) -> None:
        if connection.state == "lost":
            return
        self.done.append("release")
        if connection.state == "silent":
            await asyncio.Event().wait()
        self._free.put_nowait(connection)

    async def close(self) -> None:
        self.done.append("close")

    def terminate(self) -> None:
        self.done.append("terminate")


def opened(size: int) -> tuple[Pool, KeptConnections]:
    pool: Any = Pool(size)
    return pool, KeptConnections(pool)


async def test_statements_that_follow_one_another_use_one_connection() -> None:
    pool, kept = opened(8)
    answers: list[Any] = [await kept.fetch(query) for query in "abc"]
    assert answers == [["a"], ["b"], ["c"]]
    assert pool.done == ["acquire"]
    await kept.close()
    assert pool.done == ["acquire", "release"]


async def test_only_a_few_connections_are_kept() -> None:
    pool, kept = opened(8)
    statements = [asyncio.create_task(kept.fetch("wait")) for _ in range(KEPT_MAX + 1)]
    await asyncio.sleep(0)
    for connection in pool.made:
        connection.may_end.set()
    await asyncio.gather(*statements)
    assert pool.done == ["acquire"] * (KEPT_MAX + 1) + ["release"]
    await kept.close()


async def test_caller_that_waits_receives_the_connection_of_another() -> None:
    pool, kept = opened(1)
    first = asyncio.create_task(kept.fetch("wait"))
    await asyncio.sleep(0)
    second = asyncio.create_task(kept.acquire())
    await asyncio.sleep(0)
    pool.made[0].may_end.set()
    await first
    assert await asyncio.wait_for(second, 10) is pool.made[0]


async def test_kept_connection_may_be_acquired() -> None:
    pool, kept = opened(1)
    await kept.fetch("a")
    assert await kept.acquire() is pool.made[0]
    assert pool.done == ["acquire"]


async def test_connection_of_a_failed_or_cancelled_statement_returns_to_the_pool() -> None:
    pool, kept = opened(1)
    with pytest.raises(asyncpg.UniqueViolationError):
        await kept.fetch("fail")
    assert pool.done == ["acquire", "release"]
    cancelled = asyncio.create_task(kept.fetch("wait"))
    await asyncio.sleep(0)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert pool.done == ["acquire", "release"] * 2


@pytest.mark.parametrize(("state", "asked"), [("closed", ["acquire", "release", "acquire"]), ("lost", ["acquire"] * 2)])
async def test_connection_that_the_server_closed_is_not_used_again(state: str, asked: list[str]) -> None:
    """lost: the driver has returned it by itself."""
    pool, kept = opened(2)
    await kept.fetch("a")
    pool.made[-1].state = state  # the pool gives the last one first
    await kept.fetch("b")
    assert pool.done[: len(asked)] == asked
    await kept.close()


async def test_kept_connections_return_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_connections, "KEPT_SECONDS", 0.0)
    pool, kept = opened(1)
    await kept.fetch("a")
    async with asyncio.timeout(10):
        assert await pool._free.get() is pool.made[0]
    await kept.close()
    assert pool.done == ["acquire", "release"]


async def test_statement_that_ends_after_the_close_keeps_nothing() -> None:
    pool, kept = opened(1)
    late = asyncio.create_task(kept.fetch("wait"))
    await asyncio.sleep(0)
    await kept.close()
    pool.made[0].may_end.set()
    await late
    assert pool.done == ["acquire", "release"]


async def test_kept_connection_that_does_not_respond_is_terminated_by_the_close() -> None:
    """silent: the pool closes it as it returns, because it has run many statements, and the server does not respond."""
    pool: Any = Pool(1)
    database = Database(pool, "postgresql:///silent")
    await database.fetch("a")
    pool.made[0].state = "silent"
    async with asyncio.timeout(10):
        await database.close(0.0)
    assert pool.done == ["acquire", "release", "terminate"]
