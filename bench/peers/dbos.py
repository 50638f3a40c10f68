"""DBOS: workflows run in the callers' process, or in a worker process that reads a queue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dbos import DBOS, DBOSClient

from bench.load import AGENTS, CHILDREN, CHILDREN_OF_AN_AGENT, RUN_OF_AGENTS, STEPS
from bench.peers.model import PROMPT, Model, add
from bench.peers.peer import Peer, ready

POOL, POLL_SECONDS = 20, 0.02
QUEUE, TOPIC, VERSION = "bench", "tool", "v1"
WAIT_SECONDS = 3600
_LISTEN_SECONDS = 2.5  # a new queue is looked for once a second


def _launch(url: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Launch DBOS in this process, and return the workflows of works A and B."""
    DBOS(
        config={
            "name": "bench", "system_database_url": url, "sys_db_pool_size": POOL, "log_level": "WARNING",
            "run_admin_server": False, "application_version": VERSION, "executor_id": "bench",
        }
    )  # fmt: skip
    # its async functions run their statements in threads of the loop's default executor, which has six on two cores
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(32))

    @DBOS.step()
    async def step(n: int) -> Any:
        return n

    @DBOS.workflow(name="job")
    async def job(n: int) -> Any:
        return await step(n)

    @DBOS.workflow(name="turn")
    async def turn(n: int) -> Any:
        await step(n)
        return await DBOS.recv_async(TOPIC, timeout_seconds=WAIT_SECONDS)

    DBOS.launch()
    return job, turn


class _Dbos(Peer):
    ended: str | None = "select count(*) from dbos.workflow_status where workflow_uuid = any($1) and status = 'SUCCESS'"
    finished = ended
    # the deadline that `recv` records before it waits
    suspended = """select count(*) from dbos.operation_outputs
                    where workflow_uuid = any($1) and function_name = 'DBOS.sleep'"""


class DbosDirect(_Dbos):
    has_worker = False
    ended = None

    async def open(self, callers: int) -> None:
        self._agents = _agents_at_work()
        self._job, self._turn = _launch(self.url)
        await super().open(callers)

    async def close(self) -> None:
        await super().close()
        DBOS.destroy()

    async def start(self, lane: int) -> Any:
        handle = await DBOS.start_workflow_async(self._job, 1)
        await handle.get_result()
        return handle.workflow_id

    async def start_agents(self, work: str) -> Any:
        handle = await DBOS.start_workflow_async(self._agents[work])
        await handle.get_result()
        return handle.workflow_id

    async def start_turn(self, lane: int) -> Any:
        handle = await DBOS.start_workflow_async(self._turn, 1)
        return handle.workflow_id

    async def report(self, lane: int, key: Any) -> None:
        await DBOS.send_async(key, {"r": 1}, TOPIC)


class DbosQueue(_Dbos):
    async def serve(self) -> None:
        _launch(self.url)
        await DBOS.register_queue_async(QUEUE, polling_interval_sec=POLL_SECONDS)
        await asyncio.sleep(_LISTEN_SECONDS)
        ready()
        await asyncio.Event().wait()

    async def open(self, callers: int) -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(32))
        self._client = DBOSClient(system_database_url=self.url, system_database_pool_size=POOL)
        await super().open(callers)

    async def close(self) -> None:
        await super().close()
        self._client.destroy()

    async def start(self, lane: int) -> Any:
        return await self._enqueue("job")

    async def start_turn(self, lane: int) -> Any:
        return await self._enqueue("turn")

    async def _enqueue(self, workflow: str) -> Any:
        options = {"queue_name": QUEUE, "workflow_name": workflow, "app_version": VERSION}
        return (await self._client.enqueue_async(options, 1)).workflow_id

    async def report(self, lane: int, key: Any) -> None:
        await self._client.send_async(key, {"r": 1}, TOPIC)


def _agents_at_work() -> dict[str, Callable[..., Any]]:
    """The workflows of agents, by work; a child is a workflow of its own, an agent of a run is a step. Call it before the launch."""
    models: list[Model] = []  # one, made in the loop in which the steps run

    @DBOS.step()
    async def ask(messages: list[Any]) -> Any:
        if not models:
            models.append(Model())
        return await models[0].ask(messages)

    @DBOS.step()
    async def call(each: Any) -> Any:
        return add(each)

    @DBOS.step()
    async def agent(n: int) -> Any:
        return {"ok": n}

    @DBOS.workflow(name="steps")
    async def steps() -> Any:
        messages: list[Any] = [{"role": "user", "content": PROMPT}]
        while True:
            messages.append(await ask(messages))
            if "tool_calls" not in messages[-1]:
                return messages[-1]
            messages += [await call(each) for each in messages[-1]["tool_calls"]]

    @DBOS.workflow(name="child")
    async def child() -> Any:
        return {"ok": True}

    @DBOS.workflow(name="children")
    async def children() -> Any:
        handles = [await DBOS.start_workflow_async(child) for _ in range(CHILDREN_OF_AN_AGENT)]
        return len([await handle.get_result() for handle in handles])

    @DBOS.workflow(name="agents")
    async def agents() -> Any:
        return len([await agent(n) for n in range(AGENTS)])

    return {STEPS: steps, CHILDREN: children, RUN_OF_AGENTS: agents}
