"""The application of `bench.upgrade_check`: each of its agents waits, after other calls."""

from __future__ import annotations

import asyncio

from heliograph import Context, Delegation, Heliograph, tool
from heliograph.models import ScriptedModel, ToolCall

app = Heliograph("bench_upgrade")


@app.agent(activate_on=["workflow:start"])
async def buyer(ctx: Context) -> None:
    total = 0
    for n in range(5):
        total += await ctx.step(f"price_{n}", int, n)
    await ctx.approve("pay?", arguments={"total": total})


@app.agent(activate_on=["workflow:start"])
async def crowd(ctx: Context) -> None:
    await asyncio.gather(*(ctx.call("look", {"n": n}, timeout=None) for n in range(5)))


@app.agent(activate_on=["workflow:start"])
async def parent(ctx: Context) -> None:
    await ctx.delegates([Delegation("child", {"n": n}) for n in range(2)])


@app.agent(on_request=True)
async def child(ctx: Context) -> None:
    await ctx.call("weigh", {"n": ctx.task["n"]}, timeout=None)


@tool
def lookup(word: str) -> str:
    """Look up a word."""
    return word.upper()


@tool(approval=True)
def refund(order: str) -> str:
    """Pay back."""
    return order


script = [
    *(ToolCall(str(n), "lookup", {"word": "a"}) for n in range(3)),
    ToolCall("3", "refund", {"order": "A"}),
    "done",
]
app.prompt_agent(
    "clerk",
    "Look up {signal.payload}",
    model=ScriptedModel(script),
    tools=[lookup, refund],
    activate_on=["workflow:start"],
)
