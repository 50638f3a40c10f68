"""Helpers of the runtime tests: an open runtime, workers that start and stop, and reads of their results."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from heliograph import Call, Client, Context, Heliograph, RunResult, Runtime, Signal
from heliograph.client import Command
from heliograph.errors import StoreUnavailable
from heliograph.ledger.rows import TurnRow
from heliograph.records import Claimed
from heliograph.testing.oracles.standard_payloads import check_standard
from heliograph.testing.oracles.trace import check_trace
from heliograph.worker.claim_loop import Worker

START = ["workflow:start"]
SOON_SECONDS = 60.0


class Rig:
    """An open runtime with helpers for tests. ends_with_open_work: the test leaves work undone on purpose."""

    def __init__(self, runtime: Runtime, url: str):
        self.runtime = runtime
        self.url = url
        self.ends_with_open_work = False
        self.client = Client.on(runtime)

    async def run(self, app: Heliograph, state: Any = None, **options: Any) -> RunResult:
        async with asyncio.timeout(SOON_SECONDS):
            return await self.runtime.run(app.workflow, state, **options)

    async def start(self, app: Heliograph, state: Any = None, run_id: str | None = None) -> str:
        name, _ = await self.runtime.start(app.workflow, state, run_id)
        return name

    async def ended(self, run_id: str) -> list[Signal]:
        """Wait for the end of a run, and return its log; a worker must be running."""
        async with asyncio.timeout(SOON_SECONDS):
            return [signal async for signal in self.runtime.follow(run_id)]

    async def taken(self, *tools: str, count: int = 1) -> list[Command]:
        """Take this many commands of these tools, and wait until there are so many."""
        commands: list[Command] = []

        async def is_enough() -> bool:
            commands.extend(await self.client.take_commands(tools, count - len(commands)))
            return len(commands) == count

        await until(is_enough)
        return commands

    async def turn_of(self, agent: str, status: str | None = None) -> TurnRow:
        """Wait until an agent has a turn with this status, and return the newest one."""
        found: list[TurnRow] = []

        async def is_there() -> bool:
            found[:] = [turn for turn in await self.runtime.reader.turns() if turn.agent == agent]
            return bool(found) and status in (None, found[0].status)

        await until(is_there)
        return found[0]

    @asynccontextmanager
    async def serving(
        self, *apps: Heliograph, sweep_seconds: float = 0.05, grace_seconds: float = 10.0, runtime: Runtime | None = None,
        **options: Any,
    ) -> AsyncIterator[Worker]:  # fmt: skip
        """Run a worker and stop it like a service; its watchdog is quicker than in production."""
        serves = runtime or self.runtime
        worker = serves.worker(*(app.workflow for app in apps), **options)
        worker.watchdog.interval_seconds = sweep_seconds
        stopping = asyncio.Event()
        task = asyncio.create_task(serves.serve(worker, stopping, grace_seconds))
        try:
            yield worker
        finally:
            stopping.set()
            await task

    async def claimed_by_the_dead(self, app: Heliograph, lease_seconds: float = 0.1) -> list[Claimed]:
        """Claim turns for a worker that is killed at once."""
        return await self.runtime.ledger.claim([{"target": app.name}], "killed", 100, lease_seconds)

    async def fetch(self, query: str, *args: Any) -> list[Any]:
        """Return the rows of a query, on its own connection."""
        connection = await asyncpg.connect(self.url)
        try:
            return list(await connection.fetch(query, *args))
        finally:
            await connection.close()

    async def is_published(self) -> bool:
        """Whether the outbox is empty."""
        query = "select 1 from heliograph.outbox where project_id = $1 and published_at is null"
        return not await self.fetch(query, self.runtime.settings.project)

    async def check(self) -> None:
        """Assert that the doctor finds nothing, every trace is consistent, and every standard signal has a valid payload."""
        found, logs = await self._findings()
        assert found == [], found
        for signals in logs:
            assert check_trace(signals) == []
            for signal in signals:
                assert check_standard(signal.name, signal.payload) == []

    async def _findings(self) -> tuple[Any, list[list[Signal]]]:
        """Return the findings of the doctor, and the log of every run. Raises StoreUnavailable."""
        deadline = time.monotonic() + SOON_SECONDS
        while True:
            try:
                found = await self.runtime.world.call(
                    "doctor", self.runtime.settings.project, not self.ends_with_open_work
                )
                runs = await self.runtime.reader.runs(1000)
                return found, [await self.runtime.reader.all_signals(run.run_id) for run in runs]
            except StoreUnavailable:  # a test has cut the connections: each one in the pool fails once
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.01)


def names(signals: list[Signal]) -> list[str]:
    return [signal.name for signal in signals]


def one(signals: list[Signal], name: str) -> Any:
    """Return the payload of the only signal of this name."""
    (found,) = [signal for signal in signals if signal.name == name]
    return found.payload


def calling_app(*calls: Call, **options: Any) -> Heliograph:
    """Build an application whose agent makes these calls at once and updates `seen` with their results."""
    app = Heliograph("asking")

    @app.agent(activate_on=START, updates="seen", **options)
    async def asker(ctx: Context) -> list[Any]:
        return [[r.call_id, r.status, r.output if r.error is None else r.error] for r in await ctx.calls(calls)]

    return app


async def seen(rig: Rig, run_id: str) -> Any:
    """Wait for the end of a run, and return the agent's last update of `seen`."""
    return one(await rig.ended(run_id), "workflow:end")["state"]["seen"]


async def kill(worker: Worker, working: asyncio.Task[None]) -> None:
    """End a worker like kill -9: it releases no turn and records nothing further."""
    runners = [runner.task for runner in worker._running.values() if runner.task is not None]
    for task in (working, *runners):
        task.cancel()
    await asyncio.gather(working, *runners, return_exceptions=True)


async def lost(rig: Rig, app: Heliograph, begun: asyncio.Event) -> str:
    """Start a run and kill its worker when `begun` is set; return the run's id."""
    run_id = await rig.start(app)
    worker = rig.runtime.worker(app.workflow, lease_seconds=0.2)
    working = asyncio.create_task(worker.run())
    async with asyncio.timeout(SOON_SECONDS):
        await begun.wait()
    await kill(worker, working)
    return run_id


async def is_resolved(rig: Rig, turn_id: str, call_id: str) -> bool:
    return any(w.call_id == call_id and w.state == "resolved" for w in await rig.runtime.reader.waits(turn_id))


async def until(is_so: Callable[[], Awaitable[bool]] | Callable[[], bool]) -> None:
    """Poll until the condition holds."""
    async with asyncio.timeout(SOON_SECONDS):
        while not (answer if isinstance(answer := is_so(), bool) else await answer):  # noqa: ASYNC110  no event announces it
            await asyncio.sleep(0.01)
