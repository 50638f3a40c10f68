"""Works A and B: an agent that does nothing, durably, and one that asks somebody outside and waits for the answer."""

from __future__ import annotations

from heliograph import Context, Heliograph

app = Heliograph("bench")


@app.agent(activate_on=["workflow:start"])
async def noop(_: Context) -> dict[str, bool]:
    """What every durable system is asked first: what does doing nothing cost?"""
    return {"ok": True}


asking = Heliograph("bench-asking")


@asking.agent(activate_on=["workflow:start"])
async def asker(ctx: Context) -> object:
    """Suspended until the call is reported; no process, task or connection is held meanwhile."""
    return await ctx.call("outside", {"question": 1}, timeout=600.0, needs_token=False)
