"""`python -m tests.journeys.breaker_app CALLERS FOLDER`: a worker, until it is killed.

Each turn of its application calls a target that fails, again and again, behind one circuit breaker. The target appends a line
to a file of the folder for each call that it receives.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from heliograph import Context, Delegation, Heliograph, RecoverableError, ToolFailed, open_runtime

ROUNDS = 12
BREAKER = {"failure_threshold": 4, "success_threshold": 2, "half_open_max_calls": 3, "timeout_seconds": 0.4}


def application(callers: int, folder: str) -> Heliograph:
    app = Heliograph("breakers")

    @app.agent(activate_on=["workflow:start"], updates="ended", max_attempts=100)
    async def lead(ctx: Context) -> int:
        return len(await ctx.delegates([Delegation("caller", n) for n in range(callers)]))

    def target(call: str) -> None:
        with Path(folder, f"{os.getpid()}").open("a", encoding="utf-8") as file:
            file.write(f"{call}\n")
        raise RecoverableError("down")

    @app.agent(on_request=True, max_attempts=100)
    async def caller(ctx: Context) -> None:
        for n in range(ROUNDS):
            try:
                await ctx.step("target", target, f"{ctx.turn_id}/{n}", effect="idempotent", timeout=5.0,
                               circuit_breaker=BREAKER)  # fmt: skip
            except ToolFailed:
                await ctx.sleep(0.1)

    return app


async def main() -> None:
    app = application(int(sys.argv[1]), sys.argv[2])
    async with open_runtime() as runtime:
        worker = runtime.worker(app.workflow, concurrency=16, lease_seconds=1.0)
        worker.watchdog.interval_seconds = 0.2
        await worker.run()


if __name__ == "__main__":
    asyncio.run(main())
