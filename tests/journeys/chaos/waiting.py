"""The agents of the workload that wait: for external tools, for steps, for children, for time.

buyer: two tools at once, a step with effect `once`, a tool that always reports too late
scout: a stream of results; each result resumes the turn
lead:  a child turn, a pause, and one deferral
"""

from __future__ import annotations

import time
from typing import Any

from heliograph import Call, Context, Heliograph
from heliograph.errors import StepInDoubt, ToolTimedOut
from tests.journeys.chaos.marks import LEASE_SECONDS, append_mark, chance, is_slow

PRICE, STOCK, COURIER = "price", "stock", "courier"
TOOL_SECONDS = 120.0  # longer than any fault: the report of a tool must arrive
COURIER_SECONDS = 0.4
WAITING = {
    "buyer:done": "bought",
    "scout:done": "scouted",
    "lead:done": "led",
}  # the signals, and the keys that they fill
IN_DOUBT = "in doubt"


def add_waiting_agents(app: Heliograph) -> None:
    @app.agent(activate_on=["workflow:start"], emits=["buyer:done"], updates="bought", max_attempts=100)
    async def buyer(ctx: Context) -> dict[str, Any]:
        n: Any = ctx.document["n"]
        price, stock = await ctx.calls([Call(PRICE, {"n": n}, TOOL_SECONDS), Call(STOCK, {"n": n}, TOOL_SECONDS)])
        try:
            charged = await ctx.step("charge", charge, ctx)
        except StepInDoubt:
            charged = IN_DOUBT
        try:
            courier = await ctx.call(COURIER, {"n": n}, timeout=COURIER_SECONDS)
        except ToolTimedOut:
            courier = "too late"
        return {"price": price.output, "stock": stock.output, "charged": charged, "courier": courier}

    @app.agent(activate_on=["workflow:start"], emits=["scout:done"], updates="scouted", max_attempts=100)
    async def scout(ctx: Context) -> int:
        n: Any = ctx.document["n"]
        found = [
            r.output async for r in ctx.as_completed([Call(t, {"n": n}, TOOL_SECONDS) for t in (PRICE, STOCK, PRICE)])
        ]
        return sum(found)  # type: ignore[arg-type]

    @app.agent(activate_on=["workflow:start"], emits=["lead:done"], updates="led", max_attempts=100)
    async def lead(ctx: Context) -> Any:
        if ctx.deferrals == 0 and chance(ctx, "defer") < 0.3:
            ctx.defer("not yet", 0.2)
        packed = await ctx.delegate("packer", {"n": ctx.document["n"]})
        await ctx.pause(0.1)
        return packed

    @app.agent(on_request=True, max_attempts=100)
    async def packer(ctx: Context) -> Any:
        return price_of(await ctx.call(STOCK, {"n": ctx.task["n"]}, timeout=TOOL_SECONDS))


async def charge(ctx: Context) -> str:
    append_mark("charge", ctx.turn_id, f"{ctx.attempt}")
    if is_slow(ctx, "charges", times=2) and ctx.attempt == 1:
        time.sleep(1.8 * LEASE_SECONDS)  # noqa: ASYNC251  the next owner of the turn must not repeat it
    await ctx.sleep(0.02 * chance(ctx, "charge"))
    return "charged"


def price_of(n: int) -> int:
    return n * 3


def stock_of(n: int) -> int:
    return n + 5


def expected_of_waiting(n: int, *, is_charged: bool, is_courier_late: bool) -> dict[str, Any]:
    return {
        "bought": {"price": price_of(n), "stock": stock_of(n), "charged": "charged" if is_charged else IN_DOUBT,
                   "courier": "too late" if is_courier_late else n},
        "scouted": 2 * price_of(n) + stock_of(n), "led": price_of(stock_of(n)),
    }  # fmt: skip
