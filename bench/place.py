"""Where things are measured: fresh databases on one server, and what the server counted meanwhile."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from heliograph.ledger.install import install


@dataclass(frozen=True)
class Sample:
    """One repetition. latencies: seconds from asking for an item to its result, where that was measured.

    transactions: how many wrote anything; wal_bytes: what they wrote to the log of the whole server.
    """

    items: int
    seconds: float
    transactions: int
    wal_bytes: int
    latencies: Sequence[float] = ()

    @property
    def items_per_second(self) -> float:
        return self.items / self.seconds


@dataclass
class Place:
    """A server that nobody else uses. url: of any of its databases, for a user who may create more.

    bin: the folder of `pgbench`.
    """

    url: str
    bin: Path
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    @asynccontextmanager
    async def database(self, *, sql: str | None = None) -> AsyncIterator[str]:
        """The URL of an empty database with `sql` in it, or with Heliograph's schema; gone afterwards."""
        name = f"bench_{os.getpid()}_{next(self._numbers)}"
        url = urlunsplit(urlsplit(self.url)._replace(path=f"/{name}"))
        await self._execute(self.url, f'drop database if exists "{name}" with (force)', f'create database "{name}"')
        try:
            if sql is not None:
                await self._execute(url, sql)
            else:
                connection = await asyncpg.connect(url)
                await install(connection)
                await connection.close()
            await self._execute(self.url, "checkpoint")
            yield url
        finally:
            await self._execute(self.url, f'drop database if exists "{name}" with (force)')

    async def measure(self, work: Callable[[], Awaitable[tuple[int, Sequence[float]]]]) -> Sample:
        """Do `work`, which answers the items it finished and their latencies, between two looks at the counters."""
        transactions, wal = await self._counters()
        started = perf_counter()
        items, latencies = await work()
        seconds = perf_counter() - started
        transactions_after, wal_after = await self._counters()
        return Sample(items, seconds, transactions_after - transactions, wal_after - wal, latencies)

    async def _counters(self) -> tuple[int, int]:
        connection = await asyncpg.connect(self.url)
        try:
            row = await connection.fetchrow(
                "select pg_snapshot_xmax(pg_current_snapshot())::text::bigint,"
                " pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint"
            )
        finally:
            await connection.close()
        assert row is not None
        return row[0], row[1]

    async def _execute(self, url: str, *statements: str) -> None:
        connection = await asyncpg.connect(url)
        try:
            for statement in statements:
                await connection.execute(statement)
        finally:
            await connection.close()


async def in_lanes(lanes: int, seconds: float, one: Callable[[], Awaitable[int]]) -> tuple[int, list[float]]:
    """Call `one` over and over in so many lanes; it answers how many items it did. Answers their sum, and each
    call's duration."""
    until = perf_counter() + seconds
    durations: list[float] = []
    items = 0

    async def lane() -> None:
        nonlocal items
        while (started := perf_counter()) < until:
            done = await one()  # not `items += await one()`: the other lanes add to it meanwhile
            items += done
            durations.append(perf_counter() - started)

    await asyncio.gather(*(lane() for _ in range(lanes)))
    return items, durations
