"""Chat: one run is one conversation, and each message is a turn of its agent.

    python -m examples.chat.app

Any process may send messages; while the agent is busy, they wait in its queue. The conversation is state, so any worker
can take the next turn. HELIOGRAPH_MODEL names the model; without it a script answers.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from typing import TypedDict

from heliograph import Client, Context, Heliograph, Runtime, open_runtime
from heliograph.models import ModelRequest, ScriptedModel

DAY_SECONDS = 86_400.0


class Talk(TypedDict, total=False):
    """The messages of the conversation, oldest first."""

    talk: list[str]


def script(request: ModelRequest) -> str:
    """A scripted model: repeat the messages so far."""
    said = [line.removeprefix("you: ") for line in request.prompt.splitlines() if line.startswith("you: ")]
    return f"First you said: {said[0]}" if "first" in said[-1] else f"Message {len(said)}: {said[-1]}"


app = Heliograph("chat", state=Talk, reducers={"talk": lambda old, new: [*(old or []), new]})


@app.agent(activate_on=["workflow:start"], ttl_seconds=DAY_SECONDS)
async def host(ctx: Context) -> None:
    """Keep the conversation open until a message ends it. A suspended turn uses no process."""
    await ctx.call(f"leave-{ctx.run_id}", timeout=DAY_SECONDS / 2)


@app.agent(on_request=True, updates="talk", emits=["said"])
def listener(ctx: Context) -> str:
    """Record a message, which wakes the answering agent."""
    ctx.emit("said", {})
    return f"you: {ctx.task}"


def _prompt(ctx: Context) -> str:
    return "\n".join(["Answer the last line of this conversation in one sentence.", *ctx.state["talk"]])


app.prompt_agent(
    "speaker", _prompt, model=None if os.environ.get("HELIOGRAPH_MODEL") else ScriptedModel(script),
    activate_on=["said"], updates="talk",
)  # fmt: skip


async def converse(runtime: Runtime, messages: AsyncIterator[str], show: Callable[[str], None]) -> str:
    """Send each message after the previous answer; return the run's id."""
    client = Client.on(runtime)
    run_id, _ = await runtime.start(app.workflow)
    after = 0
    async for message in messages:
        await client.enqueue(run_id, "listener", message)
        async for signal in runtime.follow(run_id, after):
            after = signal.seq
            if signal.name == "text:complete" and isinstance(signal.payload, dict):
                show(str(signal.payload["content"]))
                break
    async for command in client.commands([f"leave-{run_id}"]):
        await command.report(result="bye")
        break
    return run_id


async def _typed() -> AsyncIterator[str]:
    while line := (await asyncio.to_thread(sys.stdin.readline)).strip():
        yield line


async def main() -> None:
    print("say something; an empty line leaves")
    async with open_runtime() as runtime:
        stopping = asyncio.Event()
        serving = asyncio.create_task(runtime.serve(runtime.worker(app.workflow), stopping))
        run_id = await converse(runtime, _typed(), print)
        async for _ in runtime.follow(run_id):  # until the run ends
            pass
        stopping.set()
        await serving


if __name__ == "__main__":
    asyncio.run(main())
