"""Work A: an application with one agent that does nothing, durably."""

from __future__ import annotations

from heliograph import Context, Heliograph

app = Heliograph("bench")


@app.agent(activate_on=["workflow:start"])
async def noop(_: Context) -> dict[str, bool]:
    """What every durable system is asked first: what does doing nothing cost?"""
    return {"ok": True}
