"""`python -m tests.recording.killed_app`: a worker that may be killed at any moment, and its application.

Each step and each tool appends its name to the file in KILLED_LOG, and takes a moment.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from heliograph import Context, Heliograph, Step, open_runtime, tool
from heliograph.models import ScriptedModel, ToolCall

MOMENT_SECONDS = 0.1


def app_of(note: Callable[[str], None]) -> Heliograph:
    """Steps side by side, a model with a tool, a pause, and progress: their turns are killed in the middle."""
    app = Heliograph("killed", memory=None)

    @tool(effect="idempotent")
    async def look(word: str) -> str:
        """Look up a word."""
        note(f"look-{word}")
        await asyncio.sleep(MOMENT_SECONDS)
        return word.upper()

    async def work(name: str) -> str:
        note(name)
        await asyncio.sleep(MOMENT_SECONDS)
        return f"did {name}"

    @app.agent(activate_on=["workflow:start"], updates="steps", max_attempts=50, emits=["noted"])
    async def steps(ctx: Context) -> str:
        found = [await ctx.step(Step("first", effect="idempotent"), work, "first")]
        ctx.progress(0.3, "begins")
        found += await asyncio.gather(*(ctx.step(Step(f"s{n}", effect="idempotent"), work, f"s{n}") for n in range(3)))
        ctx.emit("noted", {"count": len(found)})
        await ctx.pause(MOMENT_SECONDS)
        found.append(await ctx.step(Step("last", effect="idempotent"), work, "last"))
        return ", ".join(found)

    script = ScriptedModel(
        [ToolCall("1", "look", {"word": "w"}), ToolCall("2", "look", {"word": "v"}), "W and V."], per_turn=True
    )
    app.prompt_agent("looker", "Look up {state.text}", model=script, tools=[look], activate_on=["workflow:start"], updates="found",
                     max_attempts=50)  # fmt: skip
    return app


def write(name: str) -> None:
    with Path(os.environ["KILLED_LOG"]).open("a") as file:
        file.write(f"{name}\n")


async def main() -> None:
    async with open_runtime() as runtime:
        worker = runtime.worker(app_of(write).workflow, concurrency=8, lease_seconds=1.0)
        worker.watchdog.interval_seconds = 0.2
        await runtime.serve(worker, asyncio.Event(), 1.0)


if __name__ == "__main__":
    asyncio.run(main())
