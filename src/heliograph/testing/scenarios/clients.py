"""The surroundings of a simulated kernel: clients that start runs, external tools that report, people who answer and stop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from heliograph.control.pool_names import DEFAULT_POOL
from heliograph.errors import StoreUnavailable
from heliograph.ledger.client import Ledger
from heliograph.reactive.react import react_to_start
from heliograph.reactive.workflow import Workflow
from heliograph.testing.oracles.records import Books, TurnBook
from heliograph.testing.scenarios.building_blocks import COURT, LONG
from heliograph.testing.scenarios.waiting_applications import TOOLS
from heliograph.testing.scenarios.workload import FIRST_STATE
from heliograph.testing.simulator.world import SimWorld
from heliograph.turn.drafts import draft_items

_ASKED_SHARE = (
    "send",
    "rush",
    "left",
    "write",
    "watch",
    "rest",
    "gather",
    "hand",
    "judge",
)  # agents that messages go to
_VISIBLE_SECONDS = 3.0
_COURT_TOOLS = [{"tool": tool, "pool": COURT} for tool in TOOLS]


async def insist(world: SimWorld, call: Callable[[], Awaitable[Any]]) -> Any:
    while True:
        try:
            return await call()
        except StoreUnavailable:
            await world.sleep(0.2)


# ---- clients ----


async def visit(world: SimWorld, ledger: Ledger, workflow: Workflow, messages: int) -> None:
    """Act as one client: start a run, repeat the request, and send messages, some twice or by mistake."""
    plan, run_id = world.stage.plan, world.new_id("run")
    site = f"client/{workflow.name}"
    is_late = plan.draw(f"{site}/late") < 0.15  # when nothing else happens any more, nothing else wakes a worker
    await world.sleep(plan.between(site, 0.0, 3.0) + (23.0 if is_late else 0.0))
    is_long = plan.draw(f"{site}/long") < _large(world, 0.0)
    item = start_item(world, workflow, run_id, {**FIRST_STATE, "long": "x" * LONG} if is_long else FIRST_STATE)
    answer = await insist(world, lambda: ledger.start_run(item))
    if plan.draw(f"{site}/again") < 0.3:
        again = ("first", "other")[plan.index(f"{site}/same", 2)]
        await insist(world, lambda: ledger.start_run({**item, "request_hash": again}))
    sent: dict[str, Any] | None = None
    for n in range(plan.index(f"{site}/messages", messages + 1) if answer["outcome"] != "rejected" else 0):
        if plan.draw(f"{site}/burst") < 0.6:
            await world.sleep(plan.between(site, 0.0, 6.0))
        if sent is not None and plan.draw(f"{site}/repeat") < 0.25:
            message = sent if plan.draw(f"{site}/changed") < 0.6 else {**sent, "payload": {"n": -1}}
        else:
            message = sent = message_item(world, workflow, run_id, n)
        await insist(world, lambda message=message: ledger.enqueue([message]))  # type: ignore[misc]


def start_item(
    world: SimWorld, workflow: Workflow, run_id: str, state: Any, caller: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The start of a run. caller: see `react_to_start`."""
    reaction = react_to_start(workflow, run_id, state, world.now(), world.new_id, caller)
    return {
        "run_id": run_id, "target": workflow.name, "request_hash": "first", "agents": sorted(workflow.agents),
        "wakes_on_results": workflow.wakes_on_results, "signals": draft_items(reaction.drafts),
        "reaction": reaction.to_item(),
    }  # fmt: skip


def message_item(world: SimWorld, workflow: Workflow, run_id: str, n: int) -> dict[str, Any]:
    """A message to one of the agents that clients know, some with options, some by mistake to an unknown agent."""
    plan = world.stage.plan
    site = f"message/{workflow.name}"
    agents = [a for a in sorted(workflow.agents) if a in _ASKED_SHARE]
    agent = agents[plan.index(site, len(agents))] if plan.draw(f"{site}/lost") > 0.05 and agents else "nobody"
    message: dict[str, Any] = {
        "run_id": run_id, "agent": agent, "turn_id": world.new_id("turn"), "name": "user:message",
        "payload": {"n": n, "long": "x" * LONG} if plan.draw(f"{site}/long") < _large(world, 0.03) else {"n": n},
        "priority": plan.index(f"{site}/priority", 4), "max_attempts": 1 + plan.index(f"{site}/attempts", 4),
        "ttl_seconds": 2.5 if agent == "rush" or plan.draw(f"{site}/short") < 0.15 else 3600.0,
    }  # fmt: skip
    if agent in workflow.agents and (pool := workflow.agents[agent].pool) != DEFAULT_POOL:
        message["pool"] = pool
    if plan.draw(f"{site}/action") < 0.15:
        message["message_type"] = "ui_action"
    if plan.draw(f"{site}/parent") < (0.4 if "depth_max" in _books(world).small else 0.1) and (
        known := sorted(_books(world).turns)
    ):
        parent = known[plan.index(f"{site}/parent", len(known))]
        message["parent_turn_id"] = parent if plan.draw(f"{site}/known-parent") > 0.05 else "turn_nobody"
    if plan.draw(f"{site}/context") < 0.08:
        boxes = ["shelf_1", *(f"box_{turn_id}" for turn_id in sorted(_books(world).turns))]
        message["context_box_id"] = boxes[plan.index(f"{site}/context", len(boxes))]
    return message


def _books(world: SimWorld) -> Books:
    """The turns whose ids programs outside have: users list turns, and tools receive commands."""
    return world.stage.judge.books


def _large(world: SimWorld, usually: float) -> float:
    """Return how often a payload exceeds a small limit."""
    return 0.3 if "payload_bytes_max" in _books(world).small else usually


# ---- tools ----


async def serve_tools(world: SimWorld, ledger: Ledger, *, takes: bool) -> None:
    """Take commands, from the kernel or the wire, and answer each of them, without end."""
    plan, seen = world.stage.plan, 0
    while True:
        await world.sleep(plan.between("tools", 0.05, 0.8))
        if takes and not any(turn.awaited() for turn in _books(world).open_turns()) and plan.draw("tools/idle") > 0.1:
            continue
        if takes:
            rows = await insist(world, lambda: ledger.take_commands([*TOOLS, *_COURT_TOOLS], 4, _VISIBLE_SECONDS))
            commands = [(row["turn_id"], row["call_id"], row["body"].get("token")) for row in rows]
        else:
            new, seen = world.stage.commands[seen:], len(world.stage.commands)
            commands = [(body["agent_turn_id"], body["tool_call_id"], body.get("token")) for body in new]
        for turn_id, call_id, token in commands:
            world.spawn(f"tool {turn_id} {call_id}", _answer(world, ledger, turn_id, call_id, token))


async def _answer(world: SimWorld, ledger: Ledger, turn_id: str, call_id: str, token: str | None) -> None:
    """Answer a command: usually in time, else late, twice, forged, malformed, too large, or not at all."""
    plan, is_calm = world.stage.plan, world.stage.is_calm
    pace = plan.draw("tool/pace")
    if (
        world.stage.distance == 1.0 or plan.draw("tool/at-once") < 0.5
    ):  # far away, some answer as soon as they are asked
        await world.sleep(plan.between("tool", 0.02, 1.2) if pace < 0.75 or is_calm else plan.between("tool", 1.0, 9.0))
    way = 1.0 if is_calm else plan.draw("tool/way")
    report: dict[str, Any] = {
        "turn_id": turn_id,
        "call_id": call_id,
        "token": token,
        "status": "success",
        "result": 1 + plan.index("tool/result", 5),
    }
    if plan.draw("tool/lost") < (0.5 if world.stage.sends_commands else 0.1) and not is_calm:  # a wire loses more
        return
    if way < 0.1:
        report |= {"status": "failed", "error": {"code": "BROKEN", "message": "it broke"}}
    elif way < 0.27:
        await insist(world, lambda: ledger.report({**report, "token": "forged"}))
    elif way < 0.32:
        await insist(world, lambda: ledger.report({**report, "status": "unheard"}))
    elif way < 0.38:
        await insist(world, lambda: ledger.report({**report, "result": "x" * LONG}))
    elif way < 0.45:
        await insist(world, lambda: ledger.report(report))
        await world.sleep(plan.between("tool", 0.0, 2.0))
    elif way < 0.55:
        report["result"] = {"__cg_control": {"after_execution": ("terminate", "suspend")[plan.index("tool/after", 2)]}}
    elif way < 0.6:
        await insist(world, lambda: ledger.report({**report, "call_id": "c99"}))
        await insist(world, lambda: ledger.report({**report, "turn_id": "turn_nobody"}))
    report["actor"] = "tool" if plan.draw("tool/actor") < 0.3 else None
    await insist(world, lambda: ledger.report(report))


async def answer_ahead(world: SimWorld, ledger: Ledger) -> None:
    """Report results of calls before their turns open them."""
    plan = world.stage.plan
    while not world.stage.is_calm:
        await world.sleep(plan.between("ahead", 0.2, 3.0))
        open_turns = sorted(
            t.turn_id for t in _books(world).open_turns() if t.name in ("gather", "stream", "last", "both")
        )
        if open_turns:
            report = {"turn_id": open_turns[plan.index("ahead/turn", len(open_turns))], "token": (None, "forged")[plan.index("ahead/token", 2)],
                      "call_id": ("c1", "c1", "c2", "only", "c7")[plan.index("ahead/call", 5)], "status": "success", "result": 3}  # fmt: skip
            await insist(world, lambda report=report: ledger.report(report))  # type: ignore[misc]


# ---- people that are asked ----


async def answer_questions(world: SimWorld, ledger: Ledger) -> None:
    """Answer the questions of agents without end, some of them long after their turns would have expired."""
    plan, asked = world.stage.plan, set[tuple[str, str]]()
    while True:
        await world.sleep(plan.between("people", 0.2, 1.0))
        for turn in list(_books(world).open_turns()):
            for wait in turn.awaited():
                if wait.kind == "human" and (turn.turn_id, wait.call_id) not in asked:
                    asked.add((turn.turn_id, wait.call_id))
                    world.spawn(f"person {turn.turn_id} {wait.call_id}", _decide(world, ledger, turn, wait.call_id))


async def _decide(world: SimWorld, ledger: Ledger, turn: TurnBook, call_id: str) -> None:
    await world.sleep(world.stage.plan.between("people/decide", 0.1, 12.0))
    report = {
        "turn_id": turn.turn_id,
        "call_id": call_id,
        "status": "success",
        "result": {"answer": "yes", "by": "ann"},
    }
    await insist(world, lambda: ledger.report(report))


# ---- people who stop turns and runs ----


async def stop_turns_and_runs(world: SimWorld, ledger: Ledger) -> None:
    """Stop turns and runs in any state, gracefully or at once; stop some of them twice, and some that have ended."""
    plan = world.stage.plan
    while not world.stage.is_calm:
        await world.sleep(plan.between("stop", 0.3, 4.0))
        turn = _draw_turn(world, plan.draw("stop/done") < 0.1)
        if turn is None:
            continue
        order: dict[str, Any] = {"mode": ("graceful", "graceful", "force")[plan.index("stop/mode", 3)]}
        if plan.draw("stop/grace") < 0.6:
            order |= {"grace_seconds": plan.between("stop/grace", 0.0, 6.0), "reason": "enough", "actor": "operator"}
        if plan.draw("stop/run") < 0.1:
            run_id = turn.run_id if plan.draw("stop/known") > 0.1 else "run_nobody"
            await insist(world, lambda order=order, run_id=run_id: ledger.stop_runs([{"run_id": run_id, **order}]))  # type: ignore[misc]
            continue
        ids = [turn.turn_id] + (["turn_nobody"] if plan.draw("stop/known") < 0.1 else [])
        for _ in range(2 if plan.draw("stop/twice") < 0.3 else 1):
            await insist(world, lambda order=order, ids=ids: ledger.stop([{"turn_id": t, **order} for t in ids]))  # type: ignore[misc]
            await world.sleep(plan.between("stop", 0.0, 1.0))


def _draw_turn(world: SimWorld, is_done: bool) -> TurnBook | None:
    turns = sorted(
        (t for t in _books(world).turns.values() if (t.ended_by is not None) == is_done), key=lambda t: t.turn_id
    )
    return turns[world.stage.plan.index("stop/turn", len(turns))] if turns else None
