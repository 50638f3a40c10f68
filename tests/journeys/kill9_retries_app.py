"""`python -m tests.journeys.kill9_retries_app work|start`: run a worker, or start the run and print its state.

One agent repeats a step and then a delegation; another one has a model whose tool is repeated, with pauses in the worker. Every
attempt fails, and appends a line to the file in KILL9_EFFECTS.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from heliograph import Context, Heliograph, RetryPolicy, Step, open_runtime, tool
from heliograph.errors import DelegationFailed, ToolFailed
from heliograph.models import ScriptedModel, ToolCall, ToolMessage

ATTEMPTS = 3
POLICY = RetryPolicy(ATTEMPTS, "constant", 0.8, jitter=False, retryable_errors="any")

app = Heliograph("kill9-retries")


def note(text: str) -> None:
    with Path(os.environ["KILL9_EFFECTS"]).open("a") as file:
        file.write(f"{text}\n")


async def fail(what: str) -> None:
    note(what)
    raise ToolFailed("refused", code="NETWORK_ERROR")


@app.agent(activate_on=["workflow:start"], updates="counts", emits=["repeated"])
async def repeats(ctx: Context) -> Any:
    counts = {}
    try:
        await ctx.step(Step("step", effect="idempotent", retry=POLICY), fail, "step")
    except ToolFailed as error:
        counts["step"] = error.error["details"]
    try:
        await ctx.delegate("child", retry=POLICY)
    except DelegationFailed as error:
        counts["child"] = error.error["details"]
    return counts


@app.agent(on_request=True)
async def child(_ctx: Context) -> None:
    await fail("child")


@tool(effect="idempotent", retry=POLICY)
async def lookup() -> None:
    await fail("lookup")


def script(request: Any) -> Any:
    last = request.messages[-1]
    return str(last.content) if isinstance(last, ToolMessage) else ToolCall("1", "lookup", {})


app.prompt_agent(
    "modeler", "Look it up.", model=ScriptedModel(script), tools=[lookup], activate_on=["repeated"], updates="text"
)


async def work() -> None:
    async with open_runtime() as runtime:
        worker = runtime.worker(app.workflow, concurrency=8, lease_seconds=1.0)
        worker.watchdog.interval_seconds = 0.1
        await runtime.serve(worker, asyncio.Event(), 1.0)


async def start() -> None:
    result = await app.run({}, run_id="run_retries", worker=False)
    print(json.dumps([result.outcome, result.state]))


if __name__ == "__main__":
    asyncio.run({"work": work, "start": start}[sys.argv[1]]())
