"""procrastinate: callers defer tasks, and a listening worker process executes them. It keeps no results."""

from __future__ import annotations

from typing import Any

import procrastinate

from bench.peers.peer import Peer, ready

CONNECTIONS, AT_ONCE = 16, 16


class Procrastinate(Peer):
    ended = "select count(*) from procrastinate_jobs where id = any($1) and status = 'succeeded'"

    def _app(self) -> tuple[Any, Any]:
        connector = procrastinate.PsycopgConnector(conninfo=self.url, min_size=CONNECTIONS, max_size=CONNECTIONS)
        app = procrastinate.App(connector=connector)

        @app.task(name="job", queue="bench")
        async def job(n: int) -> int:
            return n

        return app, job

    async def install(self) -> None:
        app, _ = self._app()
        async with app.open_async():
            await app.schema_manager.apply_schema_async()

    async def serve(self) -> None:
        app, _ = self._app()
        async with app.open_async():
            ready()
            await app.run_worker_async(queues=["bench"], concurrency=AT_ONCE)

    async def open(self, callers: int) -> None:
        self._client, self._job = self._app()
        await self._client.open_async()
        await super().open(callers)

    async def close(self) -> None:
        await super().close()
        await self._client.close_async()

    async def start(self, lane: int) -> Any:
        return await self._job.defer_async(n=1)
