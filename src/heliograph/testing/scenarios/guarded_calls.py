"""Calls with a circuit breaker and a rate limit, for turns that a worker owns: many callers of one target that often times out."""

from __future__ import annotations

from typing import Any

from heliograph.testing.oracles.records import WaitBook
from heliograph.testing.scenarios.administrator import administer
from heliograph.testing.scenarios.faulty_owner import owned_turns
from heliograph.testing.simulator.world import SimWorld

_NAME = "guarded"
_BREAKER = {
    "type": "tool_call", "target": _NAME, "failure_threshold": 2, "success_threshold": 1, "timeout_seconds": 1.5,
    "half_open_max_calls": 2,
}  # fmt: skip
_RATE = {"kind": "tool", "name": _NAME, "count": 2, "seconds": 1, "amount": 1}
_ERROR = {"code": "TOOL_TIMEOUT", "message": "no answer", "recoverable": True}


async def call_guarded(world: SimWorld, project: str) -> None:
    """Begin such calls, begin some again, and record results of some; others are lost with their turns, or never have a result."""
    plan, books = world.stage.plan, world.stage.judge.books
    count = 0
    while not world.stage.is_calm:
        await world.sleep(plan.between("guarded", 0.05, 0.4))
        owned = [(owner, turn) for owner, turn in owned_turns(books) if turn.ended_by is None]
        if not owned:
            continue
        owner, turn = owned[plan.index("guarded/turn", len(owned))]
        begun = [wait for wait in turn.waits.values() if wait.call_id.startswith(_NAME) and wait.state == "open"]
        if begun and plan.draw("guarded/ends") < 0.6:
            await administer(world, "record_call", project, [_result(owner, begun[0], plan.draw("guarded/result"))])
            continue
        call_id = begun[0].call_id if begun and plan.draw("guarded/again") < 0.5 else None
        if call_id is None:
            count += 1
            call_id = f"{_NAME}-{count}"
            books.unlogged.add((turn.turn_id, call_id))
        item = {**owner, "call_id": call_id, "tool": _NAME, "effect": "idempotent", "step_id": None,
                "timeout_seconds": (0.8, 3.0, None)[plan.index("guarded/timeout", 3)], "circuit_breaker": _BREAKER, "rates": [_RATE]}  # fmt: skip
        [row] = await administer(world, "begin_call", project, [item])
        if row["outcome"] == "rejected" and plan.draw("guarded/repeat") < 0.5:  # as an owner does that lost the answer
            await administer(world, "begin_call", project, [item])


def _result(owner: dict[str, Any], wait: WaitBook, draw: float) -> dict[str, Any]:
    ended = {"status": "success", "result": 1} if draw < 0.4 else {"status": "timeout", "error": _ERROR}
    return {**owner, "call_id": wait.call_id, **ended}
