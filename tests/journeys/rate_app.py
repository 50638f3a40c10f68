"""`python -m tests.journeys.rate_app CALLERS FOLDER`: a worker, until it is killed.

Each turn of its application calls a target under one rate limit. For each call that it receives, the target appends a line to a file
of the folder: the call and the time.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

from heliograph import Context, Delegation, Heliograph, open_runtime

ROUNDS = 4
PER_SECOND = 32


def application(callers: int, folder: str) -> Heliograph:
    app = Heliograph("rates")

    @app.agent(activate_on=["workflow:start"], updates="ended", max_attempts=100)
    async def lead(ctx: Context) -> int:
        return len(await ctx.delegates([Delegation("caller", n) for n in range(callers)]))

    def target(call: str) -> None:
        with Path(folder, f"{os.getpid()}").open("a", encoding="utf-8") as file:
            file.write(f"{call} {time.time()}\n")

    @app.agent(on_request=True, max_attempts=100)
    async def caller(ctx: Context) -> None:
        for n in range(ROUNDS):
            await ctx.step("target", target, f"{ctx.turn_id}/{n}", call_id=f"c{n}", effect="idempotent",
                           rate_limit=f"{PER_SECOND}/s")  # fmt: skip

    return app


async def main() -> None:
    app = application(int(sys.argv[1]), sys.argv[2])
    async with open_runtime() as runtime:
        worker = runtime.worker(app.workflow, concurrency=16, lease_seconds=1.0)
        worker.watchdog.interval_seconds = 0.2
        await worker.run()


if __name__ == "__main__":
    asyncio.run(main())
