"""`python -m tests.journeys.rate_app CALLERS FOLDER`: a worker, until it is killed.

Each turn of its application calls a target under one rate limit. For each call that it receives, the target appends a line to a file
of the folder: the call and the time.
"""

from __future__ import annotations

import asyncio
import time

from heliograph import Context, Heliograph, Step
from tests.journeys.shared_target import note_call, with_callers, work

ROUNDS = 4
PER_SECOND = 32


def application(callers: int, folder: str) -> Heliograph:
    def target(call: str) -> None:
        note_call(folder, f"{call} {time.time()}")

    async def caller(ctx: Context) -> None:
        for n in range(ROUNDS):
            await ctx.step(Step("target", call_id=f"c{n}", effect="idempotent", rate_limit=f"{PER_SECOND}/s"), target, f"{ctx.turn_id}/{n}")  # fmt: skip

    return with_callers("rates", callers, caller)


if __name__ == "__main__":
    asyncio.run(work(application))
