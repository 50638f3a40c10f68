"""A second application: agents that go too far, each in its own way, and the bound that ends them.

poison:  blocks its worker past the lease each time; it may lose its worker once, and has lost its turns then
sleeper: waits for a tool that nobody serves, past its time to live
fidget:  puts itself off more often than the project allows
well:    its children delegate one level deeper than the project allows
mirror:  its child delegates to itself, and would wait for its own end
crowd:   asks one agent for more turns at once than may wait for one
flood:   wakes one agent more often than so many may wait for it
hoarder: opens more calls, and so writes more cards, than a turn may have
purse:   wants more calls of tools than its budget has: two are commands, one is cut short in its child waster, and the
         spenders are after what is left, all at once
hasty:   asks three at once, and is done with all of them when one fails: failer does, and lingerer would take long
teller:  says several things, each of which wakes clerk: so clerk has a queue, and an order
babbler: says something all the time, and so is cut short in the middle of it
early:   has the result of a call reported before it makes the call
guest:   gets a message from outside, which the client sends twice (errands.py)

What must come of them is ENDINGS; checks_trials.py asks. The bounds are LIMITS, which the whole database has.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping

import asyncpg

from heliograph import Call, Context, Delegation, Heliograph, HeliographError
from tests.journeys.chaos.away import AWAY
from tests.journeys.chaos.marks import LEASE_SECONDS, append_mark, is_slow

LIMITS: Mapping[str, int] = {"depth_max": 3, "defers_max": 3, "queue_max": 20, "cards_max": 12}
ORACLE, NOBODY = "oracle", "nobody"  # a tool that answers before it is asked, and one that never does
BLOCKED_SECONDS = 1.8 * LEASE_SECONDS  # by then somebody else has the turn
SOON_SECONDS = 2.0  # how long those wait that must not come to wait at all
LONG_SECONDS = 300.0  # longer than it takes somebody else to fail, whatever happens meanwhile
OFTEN = 200
PURSE = 4  # calls of tools, of purse and all that it delegates to
# by agent: how its turns may end
ENDINGS: Mapping[str, frozenset[str]] = {
    "poison": frozenset({"success", "failed"}),  # not slow, or ended by the kernel
    "mourner": frozenset({"success"}),
    "sleeper": frozenset({"timeout"}),
    "waiter": frozenset({"success"}),
    "fidget": frozenset({"failed"}),
    "well": frozenset({"success"}),
    "digger": frozenset({"success", "failed"}),  # the deepest fails, and the others take it
    "mirror": frozenset({"success"}),
    "narcissus": frozenset({"failed"}),
    "crowd": frozenset({"failed"}),
    "flood": frozenset({"failed"}),
    "hoarder": frozenset({"failed"}),
    "purse": frozenset({"success"}),
    "waster": frozenset({"failed", "timeout"}),
    "spender": frozenset({"success", "failed"}),  # whoever was quicker
    "hasty": frozenset({"success"}),
    "failer": frozenset({"failed"}),
    "lingerer": frozenset({"canceled"}),
    "teller": frozenset({"success"}),
    "clerk": frozenset({"success"}),
    "babbler": frozenset({"success"}),
    "early": frozenset({"success"}),
    "guest": frozenset({"success"}),
}

app = Heliograph("trials", reducers={"heard": lambda old, new: (old or 0) + new})


# ── Those who are ended ──


@app.agent(activate_on=["workflow:start"], max_attempts=2)
async def poison(ctx: Context) -> None:
    if is_slow(ctx) and ctx.attempt <= 4:
        time.sleep(BLOCKED_SECONDS)  # noqa: ASYNC251  the heart stops: that is the point


@app.agent(
    activate_on=["agent:failed"], when=lambda _state, signal: signal.payload["agent"] == "poison",
    updates="mourned", max_attempts=100,
)  # fmt: skip
def mourner(_ctx: Context) -> bool:
    """Woken by an end that the kernel wrote: somebody has to react to it (K25)."""
    return True


@app.agent(activate_on=["workflow:start"], ttl_seconds=1.5, max_attempts=100)
async def sleeper(ctx: Context) -> None:
    await ctx.call(NOBODY, timeout=None)


@app.agent(activate_on=["workflow:start"], max_attempts=100)
async def waiter(ctx: Context) -> None:
    [result] = await ctx.calls([Call(NOBODY, timeout=0.3)])
    assert result.status == "timeout"


@app.agent(activate_on=["workflow:start"], max_attempts=100)
async def fidget(ctx: Context) -> None:
    if ctx.deferrals < 2 * LIMITS["defers_max"]:
        ctx.defer("not yet", 0.02)


# ── Those who ask for too much ──


@app.agent(activate_on=["workflow:start"], max_attempts=100)
async def well(ctx: Context) -> None:
    await ctx.delegates([Delegation("digger", {"depth": 1})])


@app.agent(on_request=True, max_attempts=100)
async def digger(ctx: Context) -> None:
    depth = ctx.task["depth"]
    if depth < 2 * LIMITS["depth_max"]:
        await ctx.delegates([Delegation("digger", {"depth": depth + 1})])


@app.agent(activate_on=["workflow:start"], max_attempts=100)
async def mirror(ctx: Context) -> None:
    await ctx.delegates([Delegation("narcissus", instance="pool")])


@app.agent(on_request=True, max_attempts=100)
async def narcissus(ctx: Context) -> None:
    await ctx.delegates([Delegation("narcissus", timeout=SOON_SECONDS, instance="pool")])


@app.agent(activate_on=["workflow:start"], max_attempts=100)
async def crowd(ctx: Context) -> None:
    await ctx.delegates([Delegation("helper", instance="desk") for _ in range(LIMITS["queue_max"] + 1)])


@app.agent(on_request=True, max_attempts=100)
def helper(_ctx: Context) -> None:
    """Nobody's: crowd is refused."""


@app.agent(activate_on=["workflow:start"], emits=["flood:drop"], max_attempts=100)
def flood(ctx: Context) -> None:
    for n in range(LIMITS["queue_max"] + 2):
        ctx.emit("flood:drop", {"n": n})


@app.agent(activate_on=["flood:drop"], max_attempts=100)
def bucket(_ctx: Context) -> None:
    """Nobody's: flood is refused."""


@app.agent(activate_on=["workflow:start"], max_attempts=100)
async def hoarder(ctx: Context) -> None:
    await ctx.calls([Call(NOBODY, timeout=SOON_SECONDS) for _ in range(LIMITS["cards_max"] + 1)])


@app.agent(activate_on=["workflow:start"], budget={"tool_calls": PURSE}, max_attempts=100)
async def purse(ctx: Context) -> None:
    await ctx.calls([Call(NOBODY, timeout=0.2) for _ in range(PURSE - 2)])
    await ctx.delegates([Delegation("waster")])
    await ctx.delegates([Delegation("spender") for _ in range(PURSE)])


@app.agent(on_request=True, timeout_seconds=0.2, max_attempts=100)
async def waster(ctx: Context) -> None:
    await ctx.step("spend", spend, ctx, BLOCKED_SECONDS, effect="once")


@app.agent(on_request=True, max_attempts=100)
async def spender(ctx: Context) -> None:
    await ctx.step("spend", spend, ctx, 0.2, effect="once")


async def spend(ctx: Context, seconds: float) -> None:
    append_mark("spend", ctx.turn_id, f"{ctx.attempt}")
    await ctx.sleep(seconds)


# ── Those who must come in order, once, or in time ──


@app.agent(activate_on=["workflow:start"], max_attempts=100)
async def hasty(ctx: Context) -> None:
    asked = [Delegation("failer"), *[Delegation("lingerer")] * 2]
    results = await ctx.delegates(asked, fail_fast=True)
    assert [result.status for result in results] == ["failed", "canceled", "canceled"]


@app.agent(on_request=True, max_attempts=100)
def failer(_ctx: Context) -> None:
    raise HeliographError("as it must", code="GIVEN_UP")


@app.agent(on_request=True, max_attempts=100)
async def lingerer(ctx: Context) -> None:
    await ctx.pause(LONG_SECONDS)


@app.agent(activate_on=["workflow:start"], max_attempts=100)
async def teller(ctx: Context) -> None:
    for n in range(3):
        ctx.progress(n / 3, f"{ctx.attempt} {n}")
        await ctx.sleep(0.06)
    if is_slow(ctx) and ctx.attempt <= 3:
        time.sleep(BLOCKED_SECONDS)  # noqa: ASYNC251  it speaks again when somebody else has its turn
    ctx.progress(1.0, f"{ctx.attempt} 3")


@app.agent(
    activate_on=["agent:progress"], when=lambda _state, signal: signal.payload["agent"] == "teller",
    updates="heard", max_attempts=100,
)  # fmt: skip
async def clerk(ctx: Context) -> int:
    await ctx.sleep(0.12)
    return 1


@app.agent(activate_on=["workflow:start"], max_attempts=100)
async def babbler(ctx: Context) -> None:
    for n in range(40):
        ctx.progress(n / 40, f"{ctx.attempt} {n}")
        await ctx.sleep(0.05)


@app.agent(activate_on=["workflow:start"], updates="told", max_attempts=100)
async def early(ctx: Context) -> int:
    if not ctx.is_replaying:
        await tell_early(ctx.turn_id)
    return await ctx.call(ORACLE, call_id="foretold", needs_token=False, timeout=SOON_SECONDS)  # type: ignore[return-value]


@app.agent(on_request=True, updates="greeted", max_attempts=100)
def guest(ctx: Context) -> str:
    return str(ctx.task["text"])


async def tell_early(turn_id: str) -> None:
    """As a tool would that was quicker than the turn that asks it; until there is an answer."""
    for _ in range(OFTEN):
        try:
            connection = await asyncpg.connect(os.environ["HELIOGRAPH_DATABASE_URL"], timeout=5, command_timeout=5)
            try:
                await connection.fetchval(
                    "select heliograph.report_result('default', $1, 'foretold', null, 'success', '42')", turn_id
                )
                return
            finally:
                connection.terminate()
        except AWAY:
            await asyncio.sleep(0.05)
    raise HeliographError("the database was away for too long", code="store_unavailable")
