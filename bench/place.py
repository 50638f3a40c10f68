"""Create fresh databases on one server, and read the server's counters around a measurement."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from bench.load import Done
from heliograph.ledger.install import install


@dataclass(frozen=True)
class Sample:
    """The result of one repetition. latencies, resumes: as in `bench.load.Done`, where they were measured.

    transactions: the number that wrote anything. wal_bytes: their bytes in the whole server's log.
    """

    items: int
    seconds: float
    transactions: int
    wal_bytes: int
    latencies: Sequence[float] = ()
    resumes: Sequence[float] = ()

    @property
    def items_per_second(self) -> float:
        return self.items / self.seconds


@dataclass
class Place:
    """A server for the benchmark alone. url: one of its databases, with a user who may create more.

    bin: the folder of `pgbench`.
    """

    url: str
    bin: Path
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    @asynccontextmanager
    async def database(self, *, sql: str | None = None, template: str | None = None) -> AsyncIterator[str]:
        """Create a database until the block ends, and yield its URL: with `sql` in it ("": empty), or a copy of the one at the URL
        `template`, or with Heliograph's schema."""
        name = f"bench_{os.getpid()}_{next(self._numbers)}"
        url = urlunsplit(urlsplit(self.url)._replace(path=f"/{name}"))
        copied = f'template "{urlsplit(template).path[1:]}" strategy file_copy' if template else ""
        await self._execute(
            self.url, f'drop database if exists "{name}" with (force)', f'create database "{name}" {copied}'
        )
        try:
            if sql:
                await self._execute(url, sql)
            elif sql is None and template is None:
                connection = await asyncpg.connect(url)
                await install(connection)
                await connection.close()
            await self._execute(self.url, "checkpoint")
            yield url
        finally:
            await self._execute(self.url, f'drop database if exists "{name}" with (force)')

    async def measure(self, work: Callable[[], Awaitable[Done]]) -> Sample:
        """Run `work` and return its result with the change of the server's counters."""
        transactions, wal = await self._counters()
        started = perf_counter()
        done = await work()
        seconds = perf_counter() - started
        transactions_after, wal_after = await self._counters()
        return Sample(
            done.items, seconds, transactions_after - transactions, wal_after - wal, done.latencies, done.resumes
        )

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
