"""A third application: agents that would go on for ever, until somebody outside stops them (errands.py).

BY_RUN and BY_SQL runs are stopped whole, BY_TURN runs turn by turn, so that who waits for whom has to be found out.

stubborn:  works in its worker, which has to be told
pacers:    work and wait in turn, so that a stop meets one of them at every place
chatters:  delegate again and again: a run that is being stopped refuses that
ping pong: wake each other
boss:      waits for hand, which works in a worker
deaf:      does not listen when it is told to stop, and is ended when its time is up
"""

from __future__ import annotations

import asyncio
from typing import Any

from heliograph import Context, Delegation, Heliograph

BY_TURN, BY_SQL, BY_RUN, BY_RUN_NOW = range(4)  # the ways of a run, as in state["way"]
FOR_EVER = 900.0
PACERS = ("pacer", "strider", "rambler")
CHATTERS = ("chatter", "gossip", "rumour")
ROUNDS = 2_000  # more than the time that a stop may take

app = Heliograph("doomed", max_activations=100_000)


def is_stopped_whole(state: Any) -> bool:
    return bool(state["way"] != BY_TURN)


def is_stopped_by_turn(state: Any) -> bool:
    return bool(state["way"] == BY_TURN)


@app.agent(activate_on=["workflow:start"], when=is_stopped_whole, max_attempts=100)
async def stubborn(ctx: Context) -> None:
    await ctx.sleep(FOR_EVER)


def add_pacer(name: str) -> None:
    @app.agent(name=name, activate_on=["workflow:start"], when=is_stopped_whole, max_attempts=100)
    async def pacer(ctx: Context) -> None:
        for _ in range(ROUNDS):
            await ctx.sleep(0.03)
            await ctx.pause(0.05)


def add_chatter(name: str) -> None:
    @app.agent(name=name, activate_on=["workflow:start"], when=is_stopped_whole, max_attempts=100)
    async def chatter(ctx: Context) -> None:
        for _ in range(ROUNDS):
            await ctx.delegates([Delegation("listener")])


for each in PACERS:
    add_pacer(each)
for each in CHATTERS:
    add_chatter(each)


@app.agent(on_request=True, max_attempts=100)
def listener(_ctx: Context) -> None: ...


@app.agent(activate_on=["workflow:start", "pong:done"], emits=["ping:done"], when=is_stopped_whole, max_attempts=100)
async def ping(ctx: Context) -> None:
    await ctx.sleep(0.1)


@app.agent(activate_on=["ping:done"], emits=["pong:done"], max_attempts=100)
async def pong(ctx: Context) -> None:
    await ctx.sleep(0.1)


@app.agent(activate_on=["workflow:start"], when=is_stopped_by_turn, max_attempts=100)
async def boss(ctx: Context) -> None:
    await ctx.delegates([Delegation("hand")])


@app.agent(on_request=True, max_attempts=100)
async def hand(ctx: Context) -> None:
    await ctx.sleep(FOR_EVER)


@app.agent(activate_on=["workflow:start"], when=is_stopped_by_turn, max_attempts=100)
async def deaf(ctx: Context) -> None:
    try:
        await ctx.sleep(FOR_EVER)
    except asyncio.CancelledError:
        await ctx.sleep(FOR_EVER)
