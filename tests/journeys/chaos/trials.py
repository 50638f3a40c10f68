"""An application whose agents each exceed one limit, which ends them.

poison:  blocks its worker past the lease each time, and has two attempts
sleeper: waits past its time to live for a tool without a worker
fidget:  defers itself more often than the project allows
well:    its children delegate one level deeper than the project allows
mirror:  its child delegates to itself, and would wait for its own end
crowd:   delegates more turns to one agent at once than its queue allows
flood:   wakes one agent more often than its queue allows
hoarder: opens more calls, and therefore writes more cards, than a turn may have
purse:   makes more tool calls than its budget allows: two are commands, one is cut short in its child waster, and the
         spenders compete for the remainder
hasty:   delegates to three children with fail_fast: failer fails, and both lingerers are canceled
teller:  emits several signals, each of which wakes clerk, so clerk has a queue with an order
babbler: emits signals all the time, so faults interrupt it between two of them
early:   has the result of a call reported before it makes the call
guest:   receives a message that the client sends twice (client_actions.py)

ENDINGS are the allowed outcomes, which checks_trials.py checks. LIMITS are the limits of the project.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping

import asyncpg

from heliograph import Call, Context, Delegation, Heliograph, Step
from heliograph.errors import HeliographError
from tests.journeys.chaos.away import AWAY
from tests.journeys.chaos.marks import LEASE_SECONDS, append_mark, is_slow

LIMITS: Mapping[str, int] = {"depth_max": 3, "deferrals_max": 3, "queue_max": 20, "cards_max": 12}
ORACLE, NOBODY = "oracle", "nobody"  # a tool that reports before its call, and one that never reports
BLOCKED_SECONDS = 1.8 * LEASE_SECONDS  # by then another worker owns the turn
SOON_SECONDS = 2.0  # the timeout of calls that must be rejected before they wait
LONG_SECONDS = 300.0  # longer than the other child takes to fail, despite all faults
OFTEN = 200
PURSE = 4  # tool calls of purse and its descendants
# by agent: the allowed outcomes of its turns
ENDINGS: Mapping[str, frozenset[str]] = {
    "poison": frozenset({"success", "failed"}),  # not slow, or ended by the kernel
    "mourner": frozenset({"success"}),
    "sleeper": frozenset({"timeout"}),
    "waiter": frozenset({"success"}),
    "fidget": frozenset({"failed"}),
    "well": frozenset({"success"}),
    "digger": frozenset({"success", "failed"}),  # the deepest fails, and the others handle that
    "mirror": frozenset({"success"}),
    "narcissus": frozenset({"failed"}),
    "crowd": frozenset({"failed"}),
    "flood": frozenset({"failed"}),
    "hoarder": frozenset({"failed"}),
    "purse": frozenset({"success"}),
    "waster": frozenset({"failed", "timeout"}),
    "spender": frozenset({"success", "failed"}),  # the first ones succeed
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


# ── Agents that a limit ends ──


@app.agent(activate_on=["workflow:start"], max_attempts=2)
async def poison(ctx: Context) -> None:
    if is_slow(ctx) and ctx.attempt <= 4:
        time.sleep(BLOCKED_SECONDS)  # noqa: ASYNC251  blocks the heartbeat on purpose


@app.agent(
    activate_on=["agent:failed"], when=lambda _state, signal: signal.payload["agent"] == "poison",
    updates="mourned", max_attempts=100,
)  # fmt: skip
def mourner(_ctx: Context) -> bool:
    """Run when the kernel ends a turn, which requires a pending reaction (K25)."""
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
    if ctx.deferrals < 2 * LIMITS["deferrals_max"]:
        ctx.defer("not yet", 0.02)


# ── Agents that exceed a limit with a request ──


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
    """Never run, because the delegations of crowd are rejected."""


@app.agent(activate_on=["workflow:start"], emits=["flood:drop"], max_attempts=100)
def flood(ctx: Context) -> None:
    for n in range(LIMITS["queue_max"] + 2):
        ctx.emit("flood:drop", {"n": n})


@app.agent(activate_on=["flood:drop"], max_attempts=100)
def bucket(_ctx: Context) -> None:
    """Never run, because the signals of flood are rejected."""


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
    await ctx.step(Step("spend", effect="once"), spend, ctx, BLOCKED_SECONDS)


@app.agent(on_request=True, max_attempts=100)
async def spender(ctx: Context) -> None:
    await ctx.step(Step("spend", effect="once"), spend, ctx, 0.2)


async def spend(ctx: Context, seconds: float) -> None:
    append_mark("spend", ctx.turn_id, f"{ctx.attempt}")
    await ctx.sleep(seconds)


# ── Agents whose calls or signals have an order, a count or a deadline ──


@app.agent(activate_on=["workflow:start"], max_attempts=100)
async def hasty(ctx: Context) -> None:
    delegations = [Delegation("failer"), *[Delegation("lingerer")] * 2]
    results = await ctx.delegates(delegations, fail_fast=True)
    assert [result.status for result in results] == ["failed", "canceled", "canceled"]


@app.agent(on_request=True, max_attempts=100)
def failer(_ctx: Context) -> None:
    raise HeliographError("on purpose", code="GIVEN_UP")


@app.agent(on_request=True, max_attempts=100)
async def lingerer(ctx: Context) -> None:
    await ctx.pause(LONG_SECONDS)


@app.agent(activate_on=["workflow:start"], max_attempts=100)
async def teller(ctx: Context) -> None:
    for n in range(3):
        ctx.progress(n / 3, f"{ctx.attempt} {n}")
        await ctx.sleep(0.06)
    if is_slow(ctx) and ctx.attempt <= 3:
        time.sleep(BLOCKED_SECONDS)  # noqa: ASYNC251  it emits again while another worker owns its turn
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
        await report_early(ctx.turn_id)
    return await ctx.call(ORACLE, call_id="foretold", needs_token=False, timeout=SOON_SECONDS, result_schema=int)


@app.agent(on_request=True, updates="greeted", max_attempts=100)
def guest(ctx: Context) -> str:
    return str(ctx.task["text"])


async def report_early(turn_id: str) -> None:
    """Report like a tool that is faster than the call of its turn; retry until the kernel answers."""
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
