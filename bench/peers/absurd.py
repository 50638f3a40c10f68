"""Absurd: a worker process runs tasks with one step; an event resumes a suspended task."""

from __future__ import annotations

import asyncio
from typing import Any

import absurdctl
import asyncpg
from absurd_sdk import AsyncAbsurd

from bench.peers.peer import Peer, ready

POLL_SECONDS, WORKERS, AT_ONCE, CONNECTIONS = 0.02, 4, 8, 16


class Absurd(Peer):
    """Absurd with several workers, because each has only one connection."""

    ended = "select count(*) from absurd.t_default where task_id = any($1) and state = 'completed'"
    finished = ended
    suspended = "select count(*) from absurd.t_default where task_id = any($1) and state = 'sleeping'"

    async def install(self) -> None:
        connection = await asyncpg.connect(self.url)
        await connection.execute(absurdctl.BUNDLED_SCHEMA_SQL)  # the SQL of `absurdctl init`, which needs psql
        await connection.execute("select absurd.create_queue('default')")
        await connection.close()

    async def serve(self) -> None:
        workers = [self._worker() for _ in range(WORKERS)]
        ready()
        await asyncio.gather(
            *(
                worker.start_worker(worker_id=f"worker-{n}", concurrency=AT_ONCE, poll_interval=POLL_SECONDS)
                for n, worker in enumerate(workers)
            )
        )

    def _worker(self) -> Any:
        worker = AsyncAbsurd(self.url)

        @worker.register_task("job")
        async def job(params: Any, context: Any) -> Any:
            return await context.step("step", _step)

        @worker.register_task("turn")
        async def turn(params: Any, context: Any) -> Any:
            await context.step("step", _step)
            return await context.await_event(f"tool:{context.task_id}")

        return worker

    async def open(self, callers: int) -> None:
        self._clients = [AsyncAbsurd(self.url) for _ in range(min(callers, CONNECTIONS))]
        await super().open(callers)

    async def close(self) -> None:
        await super().close()
        for client in self._clients:
            await client.close()

    async def start(self, lane: int) -> Any:
        return await self._spawn(lane, "job")

    async def start_turn(self, lane: int) -> Any:
        return await self._spawn(lane, "turn")

    async def _spawn(self, lane: int, task: str) -> Any:
        client = self._clients[lane % len(self._clients)]
        return (await client.spawn(task, {"n": 1}, queue="default"))["task_id"]

    async def report(self, lane: int, key: Any) -> None:
        await self._clients[lane % len(self._clients)].emit_event(f"tool:{key}", {"r": 1})


async def _step() -> dict[str, bool]:
    return {"ok": True}
