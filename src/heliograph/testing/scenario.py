"""The workload: applications whose agents work, stream, fail and dawdle, and clients that start and disturb them.

The fault rate is nothing without a workload: a zombie only matters where work can
outlive its lease, a lost update where two turns end at once, a lost wake-up where
turns queue. So each application is there for some rules; its docstring says which.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from heliograph.app import Heliograph
from heliograph.errors import StoreUnavailable
from heliograph.harness.scripted import ScriptedModel
from heliograph.ledger.client import Ledger
from heliograph.ports import ModelRequest
from heliograph.reactive.reaction import react_to_start
from heliograph.reactive.workflow import Workflow
from heliograph.testing.oracles import Oracles
from heliograph.testing.plan import Plan
from heliograph.testing.sim_world import SimWorld
from heliograph.types import JsonObject
from heliograph.worker.context import Context
from heliograph.worker.voice import draft_item

SONG = "one two three four five six seven eight"
_WORDS = SONG.split()


@dataclass(frozen=True, slots=True)
class Size:
    """How large a simulated world is; shrinking makes it smaller."""

    runs: int = 4
    workers: int = 3
    messages: int = 4  # sent from outside to each run, at most


@dataclass(frozen=True, slots=True)
class Cast:
    """What agents need of the simulation. `lease_seconds` because work has to last about that long, now and then."""

    plan: Plan
    oracles: Oracles
    lease_seconds: float
    repeats_once: bool = False  # the mutant once_runs_twice: agents that must not run twice are not declared so

    async def work(self, context: Context) -> int:
        """Do nothing for a while, sometimes for longer than a lease; answers a number to return."""
        site = f"work/{context.agent}"
        pace = self.plan.draw(f"{site}/pace")
        if pace > 0.85:
            await context.sleep(self.plan.between(site, 0.5, 1.6) * self.lease_seconds)
        elif pace > 0.2:
            await context.sleep(self.plan.between(site, 0.02, 1.5))
        return 1 + self.plan.index(f"{site}/result", 9)

    def may_fail(self, context: Context, rate: float) -> None:
        if self.plan.draw(f"fail/{context.agent}") < rate:
            raise ValueError(f"{context.agent} was told to fail")


def mill(cast: Cast) -> Heliograph:
    """Two agents end at about the same time and update one key, a third waits for both: K24, joins, guards."""
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
    """Prompt agents stream, and what they stream wakes others before they end: append, owed reactions, K25."""
    app = Heliograph("choir", reducers={"heard": lambda old, new: [*old, new]})

    @app.agent(activate_on=["workflow:start", "rehearse"], emits=["verse:ready"], updates="verse", max_attempts=3)
    async def write(context: Context) -> str:
        for step in range(1, 4):
            context.progress(step / 4, f"{context.attempt}")
            await context.sleep(cast.plan.between("write", 0.01, 0.4))
        cast.may_fail(context, 0.05)
        return "verse"

    for name in ("alto", "bass"):
        app.prompt_agent(name, "sing {signal.name}", activate_on=["verse:ready"], updates=name, timeout_seconds=1.2)

    @app.agent(
        activate_on=["agent:progress"], when=lambda _state, signal: signal.payload["fraction"] == 0.5, updates="heard"
    )
    async def listen(context: Context) -> str:
        await cast.work(context)
        return f"{context.signal.payload['message']}"

    @app.agent(
        activate_on=["text:delta"], when=lambda _state, signal: "four" in signal.payload["content"], updates="heard"
    )
    def count(context: Context) -> str:
        return str(context.signal.payload["content"])

    return app


def errand(cast: Cast) -> Heliograph:
    """Effects that may not happen twice, turns that expire, messages that queue: K14, K19, K8, first come first served."""
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
    async def note(context: Context) -> None:
        await cast.work(context)
        cast.may_fail(context, 0.1)

    return app


def wheel(cast: Cast) -> Heliograph:
    """Two agents wake each other until a goal is met, a limit stops them or one gives up: ends with turns still open."""
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


APPLICATIONS: dict[str, Callable[[Cast], Heliograph]] = {"choir": choir, "errand": errand, "mill": mill, "wheel": wheel}
_FIRST_STATE: JsonObject = {"total": 0, "heard": [], "nothing": None}


def make_workflows(cast: Cast) -> dict[str, Workflow]:
    return {name: make(cast).workflow for name, make in APPLICATIONS.items()}


def make_harness(world: SimWorld) -> Callable[[Any], ScriptedModel]:
    """Every model streams the same song, or breaks off; in the virtual time of its own process."""
    plan = world.stage.plan

    def reply(request: ModelRequest) -> str:
        return " ".join(_WORDS[: 3 + plan.index("song", len(_WORDS) - 2)])

    return lambda _model: ScriptedModel(reply, pause=world.sleep, pause_seconds=plan.between("tempo", 0.01, 0.2))


async def visit(world: SimWorld, ledger: Ledger, workflow: Workflow, messages: int) -> None:
    """One client: starts a run, asks again, and sends messages to its agents, some of them twice or by mistake."""
    plan, run_id = world.stage.plan, world.new_id("run")
    site = f"client/{workflow.name}"
    is_late = plan.draw(f"{site}/late") < 0.15  # when nothing else happens any more, nothing else wakes a worker
    await world.sleep(plan.between(site, 0.0, 3.0) + (30.0 if is_late else 0.0))
    reaction = react_to_start(workflow, run_id, _FIRST_STATE, world.now(), world.new_id)
    item = {
        "run_id": run_id, "target": workflow.name, "request_hash": "first", "agents": sorted(workflow.agents),
        "signals": [draft_item(d) for d in reaction.drafts], "reaction": reaction.to_item(),
    }  # fmt: skip
    await _insist(world, lambda: ledger.start_runs([item]))
    if plan.draw(f"{site}/again") < 0.3:
        again = ("first", "other")[plan.index(f"{site}/same", 2)]
        await _insist(world, lambda: ledger.start_runs([{**item, "request_hash": again}]))
    sent: dict[str, Any] | None = None
    for n in range(plan.index(f"{site}/messages", messages + 1)):
        if plan.draw(f"{site}/burst") < 0.6:
            await world.sleep(plan.between(site, 0.0, 6.0))
        if sent is not None and plan.draw(f"{site}/repeat") < 0.25:
            message = sent if plan.draw(f"{site}/changed") < 0.6 else {**sent, "payload": {"n": -1}}
        else:
            message = sent = _message(world, workflow, run_id, n)
        await _insist(world, lambda message=message: ledger.enqueue([message]))  # type: ignore[misc]


def _message(world: SimWorld, workflow: Workflow, run_id: str, n: int) -> dict[str, Any]:
    plan = world.stage.plan
    site = f"message/{workflow.name}"
    agents = [a for a in sorted(workflow.agents) if a in ("send", "rush", "left", "write", "watch")]
    agent = agents[plan.index(site, len(agents))] if plan.draw(f"{site}/lost") > 0.05 else "nobody"
    return {
        "run_id": run_id, "agent": agent, "turn_id": world.new_id("turn"), "name": "user:message", "payload": {"n": n},
        "priority": plan.index(f"{site}/priority", 4), "max_attempts": 1 + plan.index(f"{site}/attempts", 4),
        "ttl_seconds": 2.5 if agent == "rush" or plan.draw(f"{site}/short") < 0.15 else 3600.0,
    }  # fmt: skip


async def _insist(world: SimWorld, call: Callable[[], Any]) -> None:
    while True:
        try:
            await call()
        except StoreUnavailable:
            await world.sleep(0.2)
        else:
            return
