"""Works A and B: an agent that does nothing, durably, and an agent that waits for the result of an external call."""

from __future__ import annotations

from heliograph import Context, Heliograph

app = Heliograph("bench")


@app.agent(activate_on=["workflow:start"])
async def noop(_: Context) -> dict[str, bool]:
    """Do nothing: this measures the cost of a durable turn alone."""
    return {"ok": True}


calling = Heliograph("bench-asking")


@calling.agent(activate_on=["workflow:start"])
async def asker(ctx: Context) -> object:
    """Suspend until the call is reported, without a process, task or connection."""
    return await ctx.call("outside", {"question": 1}, timeout=600.0, needs_token=False)
