"""Applications without tool calls: agents that work, stream, fail and run late. Each names the rules that it exercises."""

from __future__ import annotations

from typing import Any

from heliograph.app import Heliograph
from heliograph.execution.context import Context
from heliograph.testing.scenarios.building_blocks import LONG, Cast
from heliograph.types import JsonObject


def mill(cast: Cast) -> Heliograph:
    """Two agents end at about the same time and update one key; a third one waits for both. Rules: K24, joins, guards."""
    app = Heliograph("mill", reducers={"total": lambda old, new: old + new})

    @app.agent(activate_on=["workflow:start"], emits=["plan:ready"], updates="plan")
    async def plan(context: Context) -> JsonObject:
        await cast.work(context)
        return {"steps": 2, "none": None}

    def add_side(name: str, **options: Any) -> None:
        async def side(context: Context) -> JsonObject:
            count = await cast.work(context)
            cast.may_fail(context, 0.1)
            return {name: count, "total": count}

        app.agent(name=name, activate_on=["plan:ready"], emits=[f"{name}:done"], updates=[name, "total"], **options)(
            side
        )

    add_side("left", max_attempts=2, priority="high")
    add_side("right", timeout_seconds=4.5)

    @app.agent(activate_when_all=["left:done", "right:done"], updates="merged", priority="critical")
    async def merge(context: Context) -> int:
        total: Any = context.document["total"]
        return int(total + await cast.work(context))

    @app.agent(activate_on=["state:total:changed"], when=lambda state: 6 < state["total"] < 12, updates="total")
    def tally(context: Context) -> int:
        return 1

    return app


def choir(cast: Cast) -> Heliograph:
    """Prompt agents stream signals, which wake other agents before the stream ends. Rules: append, pending reactions, K25."""
    app = Heliograph("choir", reducers={"received": lambda old, new: [*old, new]})

    @app.agent(activate_on=["workflow:start", "rehearse"], emits=["verse:ready"], updates="verse", max_attempts=3)
    async def write(context: Context) -> str:
        for step in range(1, 4):
            is_long = cast.plan.draw("write/long") < 0.03
            context.progress(step / 4, f"{context.attempt}" + "x" * (LONG if is_long else 0))
            await context.sleep(cast.plan.between("write", 0.01, 0.4))
        cast.may_fail(context, 0.05)
        return "verse"

    for name in ("alto", "bass"):
        app.prompt_agent(name, "sing {signal.name}", activate_on=["verse:ready"], updates=name, timeout_seconds=1.2)

    @app.agent(
        activate_on=["agent:progress"],
        when=lambda _state, signal: signal.payload["fraction"] == 0.5,
        updates="received",
    )
    async def listen(context: Context) -> str:
        await cast.work(context)
        return f"{context.signal.payload['message']}"

    @app.agent(
        activate_on=["text:delta"], when=lambda _state, signal: "four" in signal.payload["content"], updates="received"
    )
    def count(context: Context) -> str:
        return str(context.signal.payload["content"])

    return app


def errand(cast: Cast) -> Heliograph:
    """Effects that may not happen twice, turns that expire, queued messages. Rules: K14, K19, K8, first come first served."""
    app = Heliograph("errand", reducers={"total": lambda old, new: old + new})

    effect: Any = "idempotent" if cast.repeats_once else "once"

    @app.agent(activate_on=["workflow:start"], updates="total", effect=effect, max_attempts=4)
    async def send(context: Context) -> int:
        before = await cast.work(context)
        cast.oracles.effect(context.turn_id)
        await context.sleep(cast.plan.between("send", 0.0, 2.0))
        return before

    @app.agent(activate_on=["workflow:start", "agent:failed"], ttl_seconds=4.0, max_attempts=1, updates="total")
    async def rush(context: Context) -> int:
        if cast.plan.draw("rush/hangs") < 0.1:
            await context.sleep(150.0)  # its worker is alive and renews: only the turn's time to live ends this
        return await cast.work(context)

    @app.agent(
        activate_on=["agent:completed"], when=lambda _, signal: signal.agent == "send", updates="note", priority="low"
    )
    async def note(context: Context) -> str | None:
        await cast.work(context)
        cast.may_fail(context, 0.1)
        return "x" * LONG if cast.plan.draw("note/long") < 0.35 else None

    return app


def wheel(cast: Cast) -> Heliograph:
    """Two agents wake each other until a goal is met, a limit stops them or one of them fails. The run ends with open turns."""
    limit, patience = (9, 40)[cast.plan.index("wheel", 2)], (12, 1000)[cast.plan.index("wheel", 2)]
    app = Heliograph("wheel", end_when=lambda state: state["total"] >= 25, max_activations=limit,
                     reducers={"total": lambda old, new: old + new})  # fmt: skip

    @app.agent(activate_on=["workflow:start", "turn:back"], emits=["turn:forth"], updates="total",
               when=lambda state: state["total"] < patience)  # fmt: skip
    async def push(context: Context) -> int:
        context.emit("turn:forth", {"n": context.attempt})
        return await cast.work(context)

    @app.agent(activate_on=["turn:forth"], emits=["turn:back"], updates="total")
    async def pull(context: Context) -> int:
        return await cast.work(context)

    @app.agent(activate_on=["turn:forth"])
    async def watch(context: Context) -> None:
        await cast.work(context)

    return app
