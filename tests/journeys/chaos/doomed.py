"""An application with endless agents, which a client stops (client_actions.py).

BY_RUN and BY_SQL stop the whole run. BY_TURN stops single turns, so the kernel has to find the descendants.

stubborn:  runs until its worker receives the stop
pacers:    alternate between work and waits, so that a stop meets one of them in every state
chatters:  delegate again and again, which a stopping run rejects
ping pong: wake each other
boss:      waits for hand, which runs in a worker
deaf:      ignores its cancellation; the kernel ends it after its grace
"""

from __future__ import annotations

import asyncio
from typing import Any

from heliograph import Context, Delegation, Heliograph

BY_TURN, BY_SQL, BY_RUN, BY_RUN_NOW = range(4)  # the ways of a run, as in state["way"]
LONG_SECONDS = 900.0
PACERS = ("pacer", "strider", "rambler")
CHATTERS = ("chatter", "gossip", "rumour")
ROUNDS = 2_000  # more than fit into the time of a stop

app = Heliograph("doomed", max_activations=100_000)


def is_stopped_whole(state: Any) -> bool:
    return bool(state["way"] != BY_TURN)


def is_stopped_by_turn(state: Any) -> bool:
    return bool(state["way"] == BY_TURN)


@app.agent(activate_on=["workflow:start"], when=is_stopped_whole, max_attempts=100)
async def stubborn(ctx: Context) -> None:
    await ctx.sleep(LONG_SECONDS)


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
    await ctx.sleep(LONG_SECONDS)


@app.agent(activate_on=["workflow:start"], when=is_stopped_by_turn, max_attempts=100)
async def deaf(ctx: Context) -> None:
    try:
        await ctx.sleep(LONG_SECONDS)
    except asyncio.CancelledError:
        await ctx.sleep(LONG_SECONDS)
