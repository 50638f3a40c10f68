"""Many callers of one target, as turns of four workers, one of which is killed each second."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from heliograph import Context, Delegation, Heliograph, open_runtime
from heliograph.config import Settings
from tests.journeys.kit import forked

ROOT = Path(__file__).parent.parent.parent
WORKERS, CALLERS = 4, 64


def with_callers(name: str, callers: int, caller: Callable[[Context], Awaitable[None]]) -> Heliograph:
    """Build an application in which one agent delegates to all callers at once."""
    app = Heliograph(name)

    @app.agent(activate_on=["workflow:start"], updates="ended", max_attempts=100)
    async def lead(ctx: Context) -> int:
        return len(await ctx.delegates([Delegation("caller", n) for n in range(callers)]))

    app.agent(name="caller", on_request=True, max_attempts=100)(caller)
    return app


def note_call(folder: str, line: str) -> None:
    """Append a line to the file of this process."""
    with Path(folder, f"{os.getpid()}").open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")


def noted_calls(folder: Path) -> list[str]:
    return [line for file in folder.iterdir() for line in file.read_text().splitlines()]


async def work(application: Callable[[int, str], Heliograph]) -> None:
    """Be a worker for `python -m MODULE CALLERS FOLDER`, until it is killed."""
    app = application(int(sys.argv[1]), sys.argv[2])
    async with open_runtime() as runtime:
        worker = runtime.worker(app.workflow, concurrency=16, lease_seconds=1.0)
        worker.watchdog.interval_seconds = 0.2
        await worker.run()


async def run_with_kills(
    database_url: str, application: Callable[[int, str], Heliograph], folder: Path, kills: int,
    has_begun: Callable[[], Awaitable[bool]],
) -> None:  # fmt: skip
    """Start the application, and run it to its end by workers of its module, of which `kills` are killed, one each second.

    has_begun: the kills begin when all workers serve and this is true.
    """
    environment = {**os.environ, "HELIOGRAPH_DATABASE_URL": database_url, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    command = forked(application.__module__, str(CALLERS), str(folder))
    workers: list[subprocess.Popen[bytes]] = []

    def begin() -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, env=environment, cwd=ROOT)

    try:
        async with open_runtime(Settings(database_url=database_url)) as runtime:
            run_id, _ = await runtime.start(application(CALLERS, str(folder)).workflow, {}, None)
            workers = [begin() for _ in range(WORKERS)]
            # no event announces it
            while len(await runtime.reader.workers()) < WORKERS or not await has_begun():  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            for n in range(kills):
                await asyncio.sleep(1)
                workers[n % WORKERS].kill()
                workers[n % WORKERS].wait()
                workers[n % WORKERS] = begin()
            signals = [signal async for signal in runtime.follow(run_id)]
            ended: Any = signals[-1]
            assert (ended.name, ended.payload["outcome"]) == ("workflow:end", "success"), ended
            assert await runtime.world.call("doctor", runtime.settings.project, False) == []
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
