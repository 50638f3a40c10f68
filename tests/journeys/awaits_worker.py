"""`python -m tests.journeys.awaits_worker`: workers that kill themselves with -9 at the n-th place that they reach.

A process that has imported everything forks one worker for each line of its stdin and prints the worker's exit code. So each
worker is a process of its own, without seconds of imports. A line is one `Job` as JSON.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from heliograph import Runtime
from heliograph.agent_loop.model_agent_loop import ModelAgentLoop
from heliograph.config import Settings
from heliograph.ledger.transactions import OpenTransaction
from heliograph.models import ModelReply, ModelRequest
from heliograph.runtime import open_runtime
from tests.journeys.awaits_app import MODELS, make_app

LEASE_SECONDS = 60.0  # the killer ends the lease
# The kernel calls of a turn. A sweep on a timer counts if it moved something.
COUNTED_CALLS = (
    "append", "begin_call", "record_call", "suspend", "defer", "finish", "finish_and_claim", "react", "mark_published",
)  # fmt: skip
MOVED = ("recovered", "ended", "resolved", "resumed")


class Job(msgspec.Struct):
    """The orders for one worker. kill_at: the place at which it dies, counted from 1; 0: never. places: the file that lists its places."""

    url: str
    project: str
    run_id: str
    protocol: str
    kill_at: int
    places: str


class Places:
    """Record the places that this process reaches, and kill it at the chosen one."""

    def __init__(self, job: Job):
        self._file = Path(job.places).open("ab", buffering=0)  # noqa: SIM115  it ends with the process
        self._remaining = job.kill_at

    async def failpoint(self, name: str) -> None:
        self._file.write(f"{name}\n".encode())
        self._remaining -= 1
        if self._remaining == 0:
            os.kill(os.getpid(), signal.SIGKILL)


class WatchedModel:
    """A model with three places: the request, the first delta and the reply."""

    def __init__(self, inner: Any, places: Places):
        self._inner = inner
        self._places = places
        self.model = inner.model

    async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
        await self._places.failpoint("model:asked")
        has_emitted_signals = False
        async for chunk in self._inner.stream(request):
            if isinstance(chunk, ModelReply):
                await self._places.failpoint("model:answered")
            elif not has_emitted_signals:
                has_emitted_signals = True
                await self._places.failpoint("model:speaks")
            yield chunk


def watch(runtime: Runtime, places: Places) -> None:
    """Make a place of each failpoint of the runtime and of each reply of the kernel: it has arrived, and nobody has
    read it."""
    world, call, commit = runtime.world, runtime.world.call, OpenTransaction.commit

    async def counted(function: str, *args: object) -> Any:
        answer = await call(function, *args)
        is_moved = function.startswith("sweep_") and isinstance(answer, dict) and any(map(answer.get, MOVED))
        if function in COUNTED_CALLS or is_moved or (function == "claim" and answer):
            await places.failpoint(f"{function}:done")
        return answer

    async def committed(self: OpenTransaction, function: str, *args: object) -> Any:
        answer = await commit(self, function, *args)
        await places.failpoint("commit:done")
        return answer

    world.failpoint = places.failpoint
    world.call = counted
    OpenTransaction.commit = committed


async def work(job: Job) -> None:
    """Work until the run has ended."""
    places = Places(job)
    app = make_app(job.protocol, job.url, places.failpoint)
    async with open_runtime(Settings(database_url=job.url, project=job.project)) as runtime:
        watch(runtime, places)
        worker = runtime.worker(app.workflow, lease_seconds=LEASE_SECONDS)
        worker._agent_loop = ModelAgentLoop(lambda model: WatchedModel(runtime.harnesses(model), places))
        worker.watchdog.interval_seconds = 0.05
        stopping = asyncio.Event()
        serving = asyncio.create_task(runtime.serve(worker, stopping, 5))
        async for _ in runtime.follow(job.run_id):
            pass
        stopping.set()
        await serving


def main() -> None:
    for protocol in MODELS:
        import_module(f"pydantic_ai.models.{protocol}")  # before the first fork
    for line in sys.stdin:
        job = msgspec.json.decode(line, type=Job)
        child = os.fork()
        if child == 0:
            os.dup2(2, 1)
            asyncio.run(work(job))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
