"""All of Heliograph: this process starts runs through the Runtime, and a worker process executes them."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import asyncpg

from bench import agent_apps
from bench.app import app, calling
from bench.load import MANY, PATIENCE_SECONDS, SINGLE, WATCH, warm_up
from bench.meter.sample import Sample
from bench.place import Place
from bench.worker import CONCURRENCY
from heliograph import Client, Heliograph
from heliograph.config import Settings
from heliograph.recording.options import RecordingOptions
from heliograph.runtime import Runtime, open_runtime
from heliograph.world.signal_bells import UNKNOWN_SECONDS

ROOT = Path(__file__).resolve().parent.parent
STOP_SECONDS = 20.0
RECORD = RecordingOptions() if os.environ.get("BENCH_RECORDING") == "1" else None  # see `bench.recording`
WORKS = "AB"


class Runs:
    """Heliograph under the load: see `bench.load.Contender`."""

    def __init__(self, runtime: Runtime, watch: asyncpg.Connection, url: str):
        self.url = url
        self.runtime = runtime
        self._watch = watch
        self._applications: dict[str, Heliograph] = {}
        self._turns: dict[str, str] = {}  # of the suspended runs, as far as they were queried

    async def start(self, lane: int) -> str:
        return await self.start_of(app)

    async def start_of(self, application: Heliograph) -> str:
        run_id, _ = await self.runtime.start(application.workflow, record=RECORD)
        return run_id

    async def start_agents(self, work: str) -> str:
        if work not in self._applications:
            self._applications[work] = agent_apps.application(work)
        return await self.start_of(self._applications[work])

    async def count_ended(self, keys: Sequence[str]) -> int:
        counted: int = await self._watch.fetchval(
            "select count(*) from heliograph.runs where project_id = 'default' and run_id = any($1) and status = 'ended'",
            keys,
        )
        return counted

    async def start_turn(self, lane: int) -> str:
        """Start a run whose one turn makes an external call and suspends; return the run's id."""
        return await self.start_of(calling)

    async def report(self, lane: int, key: str) -> None:
        """Report the result of that call like an external program."""
        item = {
            "turn_id": self._turns.pop(key),
            "call_id": "c1",
            "token": None,
            "status": "success",
            "result": {"ok": True},
        }
        reported = await self.runtime.ledger.report(item)
        if reported.outcome != "applied":
            raise RuntimeError(f"the report for {key} was not applied: {reported.outcome}")

    async def count_suspended(self, keys: Sequence[str]) -> int:
        rows = await self._watch.fetch(
            "select run_id, active_agent_turn_id from heliograph.agent_state_head"
            " where project_id = 'default' and agent_id = any($1) and status = 'suspended'",
            [f"{key}/asker" for key in keys],
        )
        self._turns |= {row["run_id"]: row["active_agent_turn_id"] for row in rows}
        return len(rows)

    async def count_finished(self, keys: Sequence[str]) -> int:
        return await self.count_ended(keys)


class FollowedRuns(Runs):
    """Heliograph in a process that also executes the runs: it waits for results, as an application does. For suspended runs
    it follows the log up to `tool:call`."""

    def __init__(self, runtime: Runtime, watch: asyncpg.Connection, url: str):
        super().__init__(runtime, watch, url)
        self._client = Client.on(runtime)

    async def count_ended(self, keys: Sequence[str]) -> int:
        for key in keys:
            await self._client.result(key)
        return len(keys)

    async def count_suspended(self, keys: Sequence[str]) -> int:
        for key in keys:
            async with aclosing(self.runtime.follow(key)) as signals:
                async for signal in signals:
                    if signal.name == "tool:call":
                        self._turns[key] = signal.turn_id or ""
                        break
        return len(keys)


async def measure_heliograph(
    work: str,
    place: Place,
    callers: int,
    seconds: float,
    *,
    existing: str | None = None,
    is_single: bool = False,
    by_relation: bool = False,
    has_worker: bool = False,
) -> Sample:
    """Measure one work. existing: the URL of the database, instead of an empty one. is_single: one item at a time, for its latency.
    by_relation: divide the log by relation. has_worker: the process that starts the runs executes them, too, and has run long enough to know which other
    processes follow."""
    load = (SINGLE if is_single else MANY)[work]
    if has_worker:
        async with (
            place.database(existing=existing) as url,
            opened(url, FollowedRuns) as runs,
            own_worker(runs.runtime),
        ):
            await warm_up(runs, work, callers)
            await asyncio.sleep(UNKNOWN_SECONDS)
            return await place.measure(lambda: load(runs, callers, seconds))
    async with place.database(existing=existing) as url, worker(url), opened(url) as runs:
        await warm_up(runs, work, callers)
        return await place.measure(lambda: load(runs, callers, seconds), url=url if by_relation else None)


@asynccontextmanager
async def own_worker(runtime: Runtime) -> AsyncIterator[None]:
    """Run a worker in this process during the block."""
    stopping = asyncio.Event()
    serving = asyncio.create_task(
        runtime.serve(runtime.worker(app.workflow, calling.workflow, concurrency=CONCURRENCY), stopping)
    )
    try:
        yield
    finally:
        stopping.set()
        await serving


async def run_one(url: str) -> str:
    """Do work A once and return the run's id."""
    async with worker(url), opened(url) as runs:
        run_id = await runs.start(0)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await runs.count_ended([run_id]):  # noqa: ASYNC110  looked for from outside, as always here
                await asyncio.sleep(0.01)
    return run_id


@asynccontextmanager
async def opened(url: str, kind: type[Runs] = Runs) -> AsyncIterator[Runs]:
    watch = await asyncpg.connect(url, server_settings=WATCH)
    try:
        async with open_runtime(Settings(url)) as runtime:
            yield kind(runtime, watch, url)
    finally:
        await watch.close()


@asynccontextmanager
async def worker(url: str, work: str = "") -> AsyncIterator[None]:
    """Run a worker process during the block. work: the agents at work that it serves, instead of A and B."""
    environment = {**os.environ, "HELIOGRAPH_DATABASE_URL": url}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.worker", *work, cwd=ROOT, env=environment, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        if await process.stdout.readline() != b"READY\n":
            raise RuntimeError(f"the worker ended with {await process.wait()}")
        yield
    finally:
        if process.returncode is None:
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), STOP_SECONDS)
        except TimeoutError:
            process.kill()
            await process.wait()
