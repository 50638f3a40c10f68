"""All of Heliograph: runs started through the Runtime here, worked on by a worker process, their results stored."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import asyncpg

from bench.app import app
from bench.place import Place, Sample, in_lanes
from heliograph.config import Settings
from heliograph.runtime import Runtime, open_runtime

ROOT = Path(__file__).resolve().parent.parent
PATIENCE_SECONDS = 120.0
_COUNT_SECONDS = 0.02
_LOOK_SECONDS = 0.0005
_PAUSE_SECONDS_MAX = 0.02


async def throughput(place: Place, callers: int, seconds: float) -> Sample:
    """So many callers start runs for `seconds`; the clock stops when the last of these runs has ended."""
    async with place.database() as url, _worker(url), _opened(url) as (runtime, connection):

        async def one() -> int:
            await runtime.start(app.workflow)
            return 1

        warm, _ = await in_lanes(callers, min(0.3, seconds), one)
        await _ended(connection, warm)

        async def work() -> tuple[int, Sequence[float]]:
            started, _ = await in_lanes(callers, seconds, one)
            await _ended(connection, warm + started)
            return started, ()

        return await place.measure(work)


async def low_load(place: Place, callers: int, seconds: float) -> Sample:
    """One run at a time, a random pause between them: from asking for it to seeing its result, from outside."""
    assert callers == 1
    async with place.database() as url, _worker(url), _opened(url) as (runtime, connection):
        look = await connection.prepare("select true from heliograph.runs where run_id = $1 and status = 'ended'")

        async def one() -> float:
            started = perf_counter()
            run_id, _ = await runtime.start(app.workflow)
            while not await look.fetchval(run_id):  # noqa: ASYNC110  an outside poller is what is measured
                await asyncio.sleep(_LOOK_SECONDS)
            return perf_counter() - started

        for _ in range(3):
            await one()

        async def work() -> tuple[int, Sequence[float]]:
            latencies: list[float] = []
            until = perf_counter() + seconds
            while perf_counter() < until:
                await asyncio.sleep(random.uniform(0, _PAUSE_SECONDS_MAX))
                latencies.append(await one())
            return len(latencies), latencies

        return await place.measure(work)


@asynccontextmanager
async def _opened(url: str) -> AsyncIterator[tuple[Runtime, asyncpg.Connection]]:
    connection = await asyncpg.connect(url)
    try:
        async with open_runtime(Settings(url)) as runtime:
            yield runtime, connection
    finally:
        await connection.close()


@asynccontextmanager
async def _worker(url: str) -> AsyncIterator[None]:
    environment = {**os.environ, "HELIOGRAPH_DATABASE_URL": url}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.worker", cwd=ROOT, env=environment, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        if await process.stdout.readline() != b"READY\n":
            raise RuntimeError(f"the worker ended with {await process.wait()}")
        yield
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _ended(connection: Any, runs: int) -> None:
    """Wait until so many runs have ended. Raises TimeoutError."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await connection.fetchval("select count(*) from heliograph.runs where status = 'ended'") < runs:  # noqa: ASYNC110
            await asyncio.sleep(_COUNT_SECONDS)
