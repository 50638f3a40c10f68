"""`python -m tests.journeys.kill9_forks_app work|start`: run a worker, or start the run and print its outcome.

The parent forks a hundred children and joins them; with KILL9_LIMIT, it maps thirty items, and runs so many children at once. Each time that it resumes with results, it appends its turn's epoch to the
file in KILL9_EFFECTS. A child appends its number, and waits a moment or for a time.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from heliograph import Context, Delegation, Heliograph, open_runtime

CHILDREN = 100
MAPPED = 30

app = Heliograph("kill9-forks")


def note(text: str) -> None:
    with Path(os.environ["KILL9_EFFECTS"]).open("a") as file:
        file.write(f"{text}\n")


@app.agent(activate_on=["workflow:start"], updates="squares")
async def parent(ctx: Context) -> Any:
    if limit := int(os.environ.get("KILL9_LIMIT", "0")):
        return await ctx.map(child, range(MAPPED), limit=limit)
    results = await ctx.delegates([Delegation("child", n) for n in range(CHILDREN)])
    note("joined")
    return [result.output for result in results]


@app.agent(on_request=True, max_attempts=50)
async def child(ctx: Context) -> int:
    note(f"child-{ctx.task}")
    await ctx.sleep(0.05)
    if ctx.task % 10 == 0:
        await ctx.pause(0.2)
    return int(ctx.task * ctx.task)


async def work() -> None:
    async with open_runtime() as runtime:
        worker = runtime.worker(app.workflow, concurrency=8, lease_seconds=1.0)
        worker.watchdog.interval_seconds = 0.2
        await runtime.serve(worker, asyncio.Event(), 1.0)


async def start() -> None:
    result = await app.run({}, run_id="run_forks", worker=False)
    print(json.dumps([result.outcome, result.state["squares"]]))


if __name__ == "__main__":
    asyncio.run({"work": work, "start": start}[sys.argv[1]]())
