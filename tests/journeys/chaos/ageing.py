"""An application in a project that is pruned all the time: rows that ended half a second ago are removed.

keeper:    waits until the records that it needs are old; each resumption reads the signal that woke it
tick tock: wake each other, so that the run has old turns
"""

from __future__ import annotations

from typing import Any

from heliograph import Context, Heliograph

PROJECT = "aside"
PRUNE = "select heliograph.prune('aside', clock_timestamp() - interval '0.5 seconds', 200, clock_timestamp())"
TICKS = 6

app = Heliograph("ageing", reducers={"ticks": lambda old, new: (old or 0) + new})


def is_young(state: Any) -> bool:
    return bool(state.get("ticks", 0) < TICKS)


@app.agent(activate_on=["workflow:start"], updates="woken_by", max_attempts=100)
async def keeper(ctx: Context) -> str:
    for _ in range(4):
        await ctx.pause(0.3)
    return str(ctx.signal.name)


@app.agent(activate_on=["workflow:start", "tock:done"], emits=["tick:done"], when=is_young, max_attempts=100)
async def tick(ctx: Context) -> None:
    await ctx.sleep(0.1)


@app.agent(activate_on=["tick:done"], emits=["tock:done"], updates="ticks", max_attempts=100)
async def tock(ctx: Context) -> int:
    await ctx.pause(0.2)
    return 1
