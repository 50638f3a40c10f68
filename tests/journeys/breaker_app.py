"""`python -m tests.journeys.breaker_app CALLERS FOLDER`: a worker, until it is killed.

Each turn of its application calls a target that fails, again and again, behind one circuit breaker. The target appends a line
to a file of the folder for each call that it receives.
"""

from __future__ import annotations

import asyncio

from heliograph import Context, Heliograph, Step
from heliograph.errors import RecoverableError, ToolFailed
from tests.journeys.shared_target import note_call, with_callers, work

ROUNDS = 12
BREAKER = {"failure_threshold": 4, "success_threshold": 2, "half_open_max_calls": 3, "timeout_seconds": 0.4}


def application(callers: int, folder: str) -> Heliograph:
    def target(call: str) -> None:
        note_call(folder, call)
        raise RecoverableError("down")

    async def caller(ctx: Context) -> None:
        for n in range(ROUNDS):
            try:
                await ctx.step(Step("target", effect="idempotent", timeout=5.0, circuit_breaker=BREAKER), target, f"{ctx.turn_id}/{n}")  # fmt: skip
            except ToolFailed:
                await ctx.sleep(0.1)

    return with_callers("breakers", callers, caller)


if __name__ == "__main__":
    asyncio.run(work(application))
