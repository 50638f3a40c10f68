"""pgqueuer: callers enqueue jobs, and a listening worker process executes them. It keeps no results."""

from __future__ import annotations

from typing import Any

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.queries import Queries

from bench.peers.peer import Peer, ready

CONNECTIONS, BATCH = 16, 10


class Pgqueuer(Peer):
    """pgqueuer as its guide recommends: a pool for callers, one connection for the worker, autovacuum set by `pgq autovac`."""

    ended = "select count(*) from pgqueuer_log where job_id = any($1) and status = 'successful'"

    async def install(self) -> None:
        connection = await asyncpg.connect(self.url)
        queries = Queries(AsyncpgDriver(connection))
        await queries.install()
        await queries.optimize_autovacuum()
        await connection.close()

    async def serve(self) -> None:
        queuer = PgQueuer(AsyncpgDriver(await asyncpg.connect(self.url)))

        @queuer.entrypoint("job")
        async def job(_: Any) -> None:
            return None

        ready()
        await queuer.run(batch_size=BATCH)

    async def open(self, callers: int) -> None:
        self._pool = await asyncpg.create_pool(self.url, min_size=CONNECTIONS, max_size=CONNECTIONS)
        self._queries = Queries(AsyncpgPoolDriver(self._pool))
        await super().open(callers)

    async def close(self) -> None:
        await super().close()
        await self._pool.close()

    async def start(self, lane: int) -> Any:
        return (await self._queries.enqueue("job", b"1"))[0]
