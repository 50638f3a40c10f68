"""Those who use the kernel by its SQL: limits, boxes, pruning, and the mistakes of an owner that is not this runtime."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from heliograph.testing.oracle_books import Books
from heliograph.testing.scenario_cast import LONG
from heliograph.testing.sim_world import SimWorld

# One of these, in some seeds: small enough to be felt by the applications, large enough for runs to come to an end.
_LIMITS: tuple[dict[str, int], ...] = (
    {"queue_max": 1}, {"queue_max": 1}, {"depth_max": 1}, {"fan_out_max": 1}, {"cards_max": 2}, {"waits_max": 2}, {"payload_bytes_max": 3_000},
    {"result_bytes_max": 3_000}, {"blob_bytes_max": 3_000}, {"running_max": 1}, {"running_max": 3}, {"defers_max": 1},
    {"card_bytes_max": 100}, {"card_bytes_max": 100, "payload_bytes_max": 6_000},
)  # fmt: skip


async def set_limits(world: SimWorld, project: str) -> None:
    plan = world.stage.plan
    if plan.draw("limits") < 0.4:
        await _ask(world, "set_limits", project, _LIMITS[plan.index("limits/which", len(_LIMITS))])


async def _ask(world: SimWorld, function: str, *args: object) -> Any:
    """One call as an administrator makes it: nobody loses it."""
    await world.sleep(0.001)
    return world.stage.execute(world.process.name, function, args)


async def prune_things(world: SimWorld, project: str) -> None:
    """In some seeds, forget what ended a few seconds ago."""
    plan = world.stage.plan
    if plan.draw("prune") > 0.15:
        return
    while True:
        await world.sleep(plan.between("prune", 1.0, 8.0))
        before = world.now() - timedelta(seconds=plan.between("prune/age", 0.5, 6.0))
        await _ask(world, "prune", project, before, (1, 3, 1000)[plan.index("prune/limit", 3)])


async def err(world: SimWorld, project: str) -> None:
    """Do, in the name of turns that are owned by somebody, what this runtime never does; all of it is refused, or
    changes boxes alone."""
    plan, books = world.stage.plan, _books(world)
    ways: list[Callable[[dict[str, Any]], tuple[str, Any]]] = [
        _record_unbegun,
        _begin_awaited,
        _crowd,
        _adopt,
        _hire,
        _swap,
        _read_own,
        _steal,
    ]
    while not world.stage.is_calm:
        await world.sleep(plan.between("err", 0.5, 6.0))
        owned = [
            {"agent_id": agent, "turn_id": token.turn_id, "epoch": token.epoch}
            for agent, token in sorted(books.tokens.items())
        ]
        await _ask(world, *_shelve(world, project))
        if owned and plan.draw("err/finish") < 0.2:
            await _finish_short(world, project, owned)
        elif owned:
            function, item = ways[plan.index("err/way", len(ways))](owned[plan.index("err/turn", len(owned))])
            if function == "begin_call" and not (calls := _awaited(books, item["turn_id"])):
                continue
            if function == "begin_call":
                item["call_id"] = calls[0]
            await _ask(world, function, project, [item])


def _books(world: SimWorld) -> Books:
    return world.stage.judge.books


def _awaited(books: Books, turn_id: str) -> list[str]:
    return [wait.call_id for wait in books.turns[turn_id].awaited()]


async def _finish_short(world: SimWorld, project: str, owned: list[dict[str, Any]]) -> None:
    """End a turn without the fields that its deliverable has to have. Once for another version, which tells the right one."""
    due = [owner for owner in owned if _books(world).turns[owner["turn_id"]].fields]
    if not due:
        return
    item = {**due[0], "outcome": "success", "content": {"fields": [{"name": "other", "value": 1}]}, "signals": []}
    for _ in range(2):
        [row] = await _ask(
            world, "finish", project, [item | {"reaction": {"version": item.pop("version", -1), "activations": []}}]
        )
        if row["outcome"] != "conflict":
            return
        item["version"] = row["run"]["version"]


def _record_unbegun(owner: dict[str, Any]) -> tuple[str, Any]:
    return "record_call", {**owner, "call_id": "never-begun", "status": "success", "result": 1}


def _begin_awaited(owner: dict[str, Any]) -> tuple[str, Any]:
    return "begin_call", {
        **owner,
        "call_id": "",
        "tool": "x",
        "effect": "pure",
        "step_id": None,
        "timeout_seconds": None,
    }


def _crowd(owner: dict[str, Any]) -> tuple[str, Any]:
    cards = [
        {"card_id": f"card_{owner['turn_id']}_{owner['epoch']}_{n}", "kind": "note", "content": n} for n in range(3)
    ]
    return "append", {**owner, "phase": None, "said": 0, "signals": [], "cards": cards}


def _adopt(owner: dict[str, Any], turn_id: str | None = None) -> tuple[str, Any]:
    child = {"agent": "nobody", "turn_id": turn_id or owner["turn_id"], "activation": 0, "priority": 1, "max_attempts": 1,
             "ttl_seconds": 9.0}  # fmt: skip
    call = {
        "call_id": "adopt",
        "tool": "nobody",
        "kind": "child",
        "effect": "once",
        "timeout_seconds": None,
        "child": child,
    }
    return "suspend", {**owner, "phase": "act", "said": 0, "seen": 0, "join": "all", "calls": [call], "cards": [],
                       "signals": [{"name": "agent:activated", "payload": {}, "parent": None}]}  # fmt: skip


def _hire(owner: dict[str, Any]) -> tuple[str, Any]:
    return _adopt(owner, "turn_nobody")


def _swap(owner: dict[str, Any]) -> tuple[str, Any]:
    return "replace_boxes", {**owner, "context_box_id": "shelf_1", "output_box_id": f"box_{owner['turn_id']}"}


def _read_own(owner: dict[str, Any]) -> tuple[str, Any]:
    return "replace_boxes", {**owner, "context_box_id": f"box_{owner['turn_id']}"}


def _steal(owner: dict[str, Any]) -> tuple[str, Any]:
    return "replace_boxes", {**owner, "output_box_id": "shelf_2", "epoch": owner["epoch"]}


def _shelve(world: SimWorld, project: str) -> tuple[Any, ...]:
    """Something about boxes that concerns no turn: put one together, fork it, read it."""
    plan = world.stage.plan
    box_id = f"shelf_{plan.index('err/box', 4)}"
    way = plan.draw("err/shelve")
    if way < 0.4:
        content = "x" * LONG if plan.draw("err/long") < 0.2 else plan.index("err/content", 2)
        card_id = "card_taken" if plan.draw("err/card") < 0.2 else None
        return (
            "put_boxes",
            project,
            [{"box_id": box_id, "cards": [{"card_id": card_id, "kind": "note", "content": content}]}],
        )
    if way < 0.8:
        known = sorted(_books(world).turns) or ["turn_nobody"]
        turn_id = known[plan.index("err/base", len(known))]
        base = (f"box_{turn_id}", f"shelf_{plan.index('err/other', 5)}")[plan.index("err/kind", 2)]
        writer = (None, None, turn_id)[plan.index("err/writer", 3)]
        return "fork_boxes", project, [{"box_id": box_id, "base_box_id": base, "writer_turn_id": writer}]
    return "read_box", project, box_id, 0, 10
