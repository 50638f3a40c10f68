"""A faulty owner sends wrong calls for turns that a worker owns.

The kernel rejects each one, or it has no effect; otherwise a rule of the kernel is broken.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from heliograph.ids import signal_id
from heliograph.testing.oracles.records import Books, TurnBook, WaitBook
from heliograph.testing.scenarios.administrator import administer
from heliograph.testing.scenarios.building_blocks import LONG
from heliograph.testing.simulator.world import SimWorld

Owner: TypeAlias = dict[str, Any]
Act: TypeAlias = Callable[[str, Any], Awaitable[list[dict[str, Any]]]]  # one kernel function with one item
Way: TypeAlias = Callable[[Act, Owner, TurnBook], Awaitable[None]]


async def err(world: SimWorld, project: str, *, with_boxes: bool) -> None:
    plan, books = world.stage.plan, world.stage.judge.books
    ways = _WAYS + _BOX_WAYS if with_boxes else _WAYS

    async def act(function: str, item: Any) -> list[dict[str, Any]]:
        answer: list[dict[str, Any]] = await administer(world, function, project, [item])
        return answer

    while not world.stage.is_calm:
        await world.sleep(plan.between("err", 0.2, 1.6))
        owned = [(owner, turn) for owner, turn in owned_turns(books) if turn.ended_by is None]
        if owned:
            way = ways[plan.index("err/way", len(ways))]
            fit = [pair for pair in owned if way not in _REQUIRED_STATES or _REQUIRED_STATES[way](pair[1], books)]
            for rare, is_there in _REQUIRED_STATES.items():  # prefer turns in a rare state
                found = [pair for pair in owned if is_there(pair[1], books)]
                if found and plan.draw("err/rare") < 0.3:
                    way, fit = rare, found
            if fit:
                await way(act, *fit[plan.index("err/turn", len(fit))])


def owned_turns(books: Books) -> list[tuple[Owner, TurnBook]]:
    return [
        ({"agent_id": agent_id, "turn_id": token.turn_id, "epoch": token.epoch}, books.turns[token.turn_id])
        for agent_id, token in sorted(books.tokens.items())
    ]


async def _record_unbegun(act: Act, owner: Owner, _turn: TurnBook) -> None:
    await act("record_call", {**owner, "call_id": "never-begun", "status": "success", "result": 1})


async def _begin(act: Act, owner: Owner, call_id: str) -> None:
    await act(
        "begin_call",
        {**owner, "call_id": call_id, "tool": "x", "effect": "pure", "step_id": None, "timeout_seconds": None},
    )


async def _begin_awaited(act: Act, owner: Owner, turn: TurnBook) -> None:
    await _begin(act, owner, turn.awaited()[0].call_id)


async def _begin_resolved(act: Act, owner: Owner, turn: TurnBook) -> None:
    await _begin(act, owner, _resolved(turn)[0].call_id)


async def _begin_more(act: Act, owner: Owner, _turn: TurnBook) -> None:
    """Begin one call more than a turn may have."""
    await _begin(act, owner, "one-more")


def _resolved(turn: TurnBook) -> list[WaitBook]:
    return [wait for wait in turn.waits.values() if wait.state == "resolved"]


async def _record_awaited(act: Act, owner: Owner, turn: TurnBook) -> None:
    await act("record_call", {**owner, "call_id": turn.awaited()[0].call_id, "status": "success", "result": 1})


async def _record_again(act: Act, owner: Owner, turn: TurnBook) -> None:
    await act("record_call", {**owner, "call_id": _recorded(turn)[0].call_id, "status": "success", "result": 2})


def _recorded(turn: TurnBook) -> list[WaitBook]:
    return [wait for wait in _resolved(turn) if wait.kind == "inline"]


async def _release(act: Act, owner: Owner, _turn: TurnBook) -> None:
    """Release a turn with a pending stop, which ends it."""
    await act("release", owner)


async def _defer(act: Act, owner: Owner, _turn: TurnBook) -> None:
    """Defer a turn with a pending stop, which ends it too."""
    await act("defer", {**owner, "reason": "later", "delay_seconds": 1.0})


async def _crowd(act: Act, owner: Owner, _turn: TurnBook) -> None:
    cards = [
        {"card_id": f"card_{owner['turn_id']}_{owner['epoch']}_{n}", "kind": "note", "content": "x" * n}
        for n in (0, LONG, 2)
    ]
    await act("append", {**owner, "phase": None, "signals_emitted": 0, "signals": [], "cards": cards})


async def _overflow(act: Act, owner: Owner, turn: TurnBook) -> None:
    """Write more cards than a turn may have."""
    await _crowd(act, owner, turn)


async def _adopt(act: Act, owner: Owner, _turn: TurnBook) -> None:
    """Delegate to a turn that exists: the turn itself."""
    await _hire(act, owner, {"agent": "nobody", "turn_id": owner["turn_id"]})


async def _hire_nobody(act: Act, owner: Owner, _turn: TurnBook) -> None:
    """Delegate to an unknown agent."""
    await _hire(act, owner, {"agent": "nobody", "turn_id": "turn_nobody"})


async def _hire_late(act: Act, owner: Owner, turn: TurnBook) -> None:
    """Delegate in a run that is being stopped."""
    await _hire(act, owner, {"agent": turn.name, "instance": "heir", "turn_id": "turn_heir"})


async def _hire_crowd(act: Act, owner: Owner, turn: TurnBook) -> None:
    """Delegate to one agent more often than its queue allows."""
    await _hire(act, owner, *({"agent": turn.name, "instance": "desk", "turn_id": f"turn_desk_{n}"} for n in range(2)))


async def _hire(act: Act, owner: Owner, *children: Mapping[str, str]) -> None:
    root = signal_id(owner["agent_id"].partition("/")[0], 1)
    rest = {"activation": 0, "priority": 1, "max_attempts": 1, "ttl_seconds": 9.0}
    calls = [
        {"call_id": f"hire-{n}", "tool": child["agent"], "kind": "child", "effect": "once", "timeout_seconds": None,
         "child": {**rest, **child}}
        for n, child in enumerate(children)
    ]  # fmt: skip
    await act("suspend", {**owner, "phase": "act", "signals_emitted": 0, "seen": 0, "join": "all", "calls": calls, "cards": [],
                          "signals": [{"name": "agent:activated", "payload": {}, "parent": root}]})  # fmt: skip


async def _read_shelf(act: Act, owner: Owner, turn: TurnBook) -> None:
    await act("replace_boxes", {**owner, "context_box_id": "shelf_1", "output_box_id": f"box_{turn.turn_id}"})


async def _read_own(act: Act, owner: Owner, turn: TurnBook) -> None:
    await act("replace_boxes", {**owner, "context_box_id": f"box_{turn.turn_id}"})


async def _write_shelf(act: Act, owner: Owner, _turn: TurnBook) -> None:
    await act("replace_boxes", {**owner, "output_box_id": "shelf_2"})


async def _come_late(act: Act, owner: Owner, _turn: TurnBook) -> None:
    await act("replace_boxes", {**owner, "epoch": owner["epoch"] - 1, "context_box_id": None})


async def _finish_short(act: Act, owner: Owner, turn: TurnBook) -> None:
    """Finish without the required fields; a first call with a wrong version returns the right one."""
    version = -1
    for _ in range(2 if turn.fields else 0):
        [row] = await act("finish", {
            **owner, "outcome": "success", "content": {"fields": [{"name": "other", "value": 1}]}, "version": version,
            "signals": [], "reaction": {"activations": []},
        })  # fmt: skip
        if row["outcome"] != "conflict":
            return
        version = row["run"]["version"]


def _is_at(limit: str, reached: int, books: Books) -> bool:
    """Whether a limit that an administrator lowered is reached."""
    most = books.limits.get(limit) if limit in books.small else None
    return most is not None and reached >= most


_WAYS: tuple[Way, ...] = (
    _record_unbegun, _begin_awaited, _begin_resolved, _begin_more, _record_awaited, _record_again, _release, _defer, _crowd,
    _overflow, _adopt, _hire_nobody, _hire_late, _hire_crowd, _finish_short,
)  # fmt: skip
_BOX_WAYS: tuple[Way, ...] = (_read_shelf, _read_own, _write_shelf, _come_late)
_REQUIRED_STATES: Mapping[Way, Callable[[TurnBook, Books], bool]] = {
    _begin_awaited: lambda turn, _: bool(turn.awaited()),
    _begin_resolved: lambda turn, _: bool(_resolved(turn)),
    _begin_more: lambda turn, books: _is_at("waits_max", len(turn.waits), books),
    _record_awaited: lambda turn, _: bool(turn.awaited()),
    _record_again: lambda turn, _: bool(_recorded(turn)),
    _release: lambda turn, _: turn.force_at is not None,
    _defer: lambda turn, _: turn.force_at is not None,
    _overflow: lambda turn, books: _is_at("cards_max", len(turn.cards) + 3, books),
    _hire_late: lambda turn, books: books.runs[turn.run_id] == "terminating",
    _hire_crowd: lambda _, books: _is_at("queue_max", 1, books),
    _finish_short: lambda turn, _: bool(turn.fields),
}
