"""Create fresh databases on one server, and measure what happens in them."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from bench.meter.meter import Meter
from bench.meter.sample import Done, Sample
from heliograph.ledger.install import install

SQL = Path(__file__).with_name("sql")
# settings of the server of a benchmark: it logs what a server with replicas logs, and a slot keeps the log that is measured
SERVER = {"max_wal_size": "4GB", "max_connections": "200", "wal_level": "replica", "max_wal_senders": "10"}


@dataclass
class Place:
    """A server for the benchmark alone. url: one of its databases, with a user who may create more.

    bin: the folder of `pgbench` and `pg_waldump`.
    """

    url: str
    bin: Path
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    @asynccontextmanager
    async def database(self, *, sql: str | None = None, existing: str | None = None) -> AsyncIterator[str]:
        """Create a database until the block ends, and yield its URL: with `sql` in it ("": empty), or with Heliograph's schema.

        existing: the URL of a database that is used instead, and stays.
        """
        if existing is not None:
            await self._execute(self.url, "checkpoint")
            yield existing
            return
        name = f"bench_{os.getpid()}_{next(self._numbers)}"
        url = urlunsplit(urlsplit(self.url)._replace(path=f"/{name}"))
        await self._execute(self.url, f'drop database if exists "{name}" with (force)', f'create database "{name}"')
        try:
            if sql:
                await self._execute(url, sql)
            elif sql is None:
                connection = await asyncpg.connect(url)
                await install(connection)
                await connection.close()
            await self._execute(self.url, "checkpoint")
            yield url
        finally:
            await self._execute(self.url, f'drop database if exists "{name}" with (force)')

    async def measure(
        self, work: Callable[[], Awaitable[Done]], *, caller: int | None = None, url: str | None = None
    ) -> Sample:
        """Run `work` and return its result with the counts of the server and its processes: see `bench.meter.meter.Meter`.

        url: the database, if the log is to be divided by its relations, which takes a while.
        """
        return await Meter(self.url, self.bin).measure(work, caller=caller, relations_of=url)

    async def _execute(self, url: str, *statements: str) -> None:
        connection = await asyncpg.connect(url)
        try:
            for statement in statements:
                await connection.execute(statement)
        finally:
            await connection.close()
