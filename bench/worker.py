"""`python -m bench.worker [WORK]`: serve works A and B, or agents at work, on HELIOGRAPH_DATABASE_URL until SIGTERM."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Sequence

from bench.agent_apps import application
from bench.app import app, calling
from heliograph.cli.garbage_collection import tuned_garbage_collection
from heliograph.runtime import open_runtime
from heliograph.world.event_loop import new_event_loop

CONCURRENCY = 256


async def main(works: Sequence[str]) -> None:
    """Print READY, then work until SIGTERM."""
    apps = [application(work) for work in works] or [app, calling]
    workflows = [each.workflow for each in apps]
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    async with open_runtime() as runtime:
        worker = runtime.worker(*workflows, concurrency=CONCURRENCY)
        print("READY", flush=True)
        with tuned_garbage_collection():  # as in `helio worker`
            await runtime.serve(worker, stopping)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=new_event_loop) as runner:  # as in `helio worker`
        runner.run(main(sys.argv[1:]))
