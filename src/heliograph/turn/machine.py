"""The turn as a machine without IO: an event in, the next state and what it wants out.

    Hydrated ── ready, plan_ready ──▶ Act; its context box cannot be read: error ──▶ Deliver(failed)
    Acted    ── action_complete, reflection_complete, terminated ──▶ Deliver(success)
    Raised   ── error, terminated ──▶ Deliver(failed | timeout)
    Stopped  ── terminated ──▶ Deliver(canceled); whoever stopped it has said halt
    Waiting  ──▶ Suspend, and if everything is there already: Resolved ──▶ Act
    Deferred   ──▶ Postpone

Every turn goes through the five phases (LC-01); a phase that has nothing to do
costs no commit: its signal rides in the next one. A turn that may
not run again after a crash, or whose run is over, goes straight to terminate.
One that waited is in act all the while (LC-02): claimed again it goes on there,
or, where the result of a call is to end it, delivers that result (L0-56).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import assert_never

from heliograph.codes import CANCELED, IN_DOUBT, INIT_FAILED, TIMEOUT, TOOL_ERROR, TOOL_TIMEOUT
from heliograph.lifecycle.machine import BadTransition, step
from heliograph.lifecycle.phases import Phase
from heliograph.records import Outcome
from heliograph.signals.model import Draft
from heliograph.signals.payload import truncated
from heliograph.turn.calls import CallResult
from heliograph.turn.deliverable import deliverable_of, deliverable_of_error
from heliograph.turn.events import (
    Act,
    Acted,
    Deferred,
    DeferTurn,
    Deliver,
    Effect,
    Emit,
    Event,
    Hydrated,
    Raised,
    Resolved,
    Stopped,
    Suspend,
    Waiting,
)
from heliograph.types import Json, JsonObject


@dataclass(frozen=True, slots=True)
class Turn:
    """The state of the machine: the agent, the signal that activated it, its phase, and what the agent can do."""

    agent: str
    version: str
    activation_id: str
    phase: Phase = Phase.INIT
    capabilities: tuple[str, ...] = ()


def advance(turn: Turn, event: Event, now: datetime) -> tuple[Turn, list[Effect]]:
    """The turn after `event`, and what it wants, in order.

    Raises BadTransition for an event that cannot come in this phase.
    """
    match event:
        case Hydrated():
            return _hydrated(turn, event, now)
        case Acted():
            return _succeed(turn, event.output, now, "partial" if event.is_partial else "success", event.limit)
        case Raised():
            return _end(turn, event.outcome, event.code, event.message, now, is_recoverable=event.is_recoverable)
        case Stopped():
            return _stop(turn, event.reason, now)
        case Waiting():
            return _in_act(turn, event), [Suspend(event.calls, event.join)]
        case Deferred():
            return _in_act(turn, event), [DeferTurn(event.reason, event.seconds, event.at_most)]
        case Resolved():
            return _go_on(_in_act(turn, event), event, now)
        case _:
            assert_never(event)


def _hydrated(turn: Turn, event: Hydrated, now: datetime) -> tuple[Turn, list[Effect]]:
    if event.is_run_over:
        return _end(turn, "canceled", CANCELED, "the run ended before this turn began", now)
    if event.recoveries and not event.may_run_again:
        message = f"lost its worker {event.recoveries} times; whether its effect happened is not known, and it may not run twice"
        return _end(turn, "failed", IN_DOUBT, message, now)
    if event.is_resumed:
        if turn.phase is not Phase.INIT:
            raise BadTransition(f"Hydrated means nothing in phase {turn.phase}: a turn is claimed before all else")
        turn = replace(turn, phase=Phase.ACT)
    if event.problem is not None:
        return _end(turn, "failed", INIT_FAILED, event.problem, now)
    if event.is_resumed:
        return _go_on(turn, event, now)
    turn, drafts = _through(turn, now, [
        ("ready", {"capabilities": list(turn.capabilities), "version": turn.version}, "ready"),
        ("plan_ready", {"steps": 1, "tools_required": []}, "plan_ready"),
    ])  # fmt: skip
    return turn, [Emit(tuple(drafts)), Act()]


def _go_on(turn: Turn, event: Hydrated | Resolved, now: datetime) -> tuple[Turn, list[Effect]]:
    """Continue a turn with new results: it acts, ends with one of them, or waits for another one that ends it."""
    if event.awaits_closing:
        return turn, [Suspend((), "each")]
    return (turn, [Act()]) if event.answer is None else _conclude(turn, event.answer, now)


def _in_act(turn: Turn, event: Event) -> Turn:
    if turn.phase is not Phase.ACT:
        raise BadTransition(f"{type(event).__name__} means nothing in phase {turn.phase}: only what acts can wait")
    return turn


def _succeed(
    turn: Turn, output: Json, now: datetime, outcome: Outcome = "success", limit: JsonObject | None = None
) -> tuple[Turn, list[Effect]]:
    decision, cue = _decide(outcome, limit)
    turn, drafts = _through(turn, now, [
        ("action_complete", {"steps_executed": 1, "success": True}, "action_complete"),
        ("reflection_complete", decision, cue),
    ])  # fmt: skip
    told: JsonObject = {} if limit is None else {"limit": limit}
    outputs: list[Json] = [] if output is None else [truncated(output)]
    drafts.append(_draft(turn, "terminated", {"status": outcome, "outputs": outputs, **told}, now))
    return turn, [Emit(tuple(drafts)), Deliver(outcome, {**deliverable_of(output), **told}, output)]


def _decide(outcome: Outcome, limit: JsonObject | None) -> tuple[JsonObject, str]:
    """The decision of reflect, and the cue that follows: a turn that a limit cut short has not reached its goal."""
    if outcome == "success":
        return {"decision": "goal_achieved"}, "goal_achieved"
    reason = "a limit was reached before the agent was done" if limit is None else str(limit.get("message"))
    return {"decision": "iteration_needed", "reason": reason}, "halt"


def _conclude(turn: Turn, answer: CallResult, now: datetime) -> tuple[Turn, list[Effect]]:
    """The end of a turn by the result of a call that was made with after="terminate"."""
    if answer.is_good:
        return _succeed(turn, answer.output, now, "success" if answer.status == "success" else "partial")
    error = answer.error or {}
    code = str(error.get("code") or (TOOL_TIMEOUT if answer.status == "timeout" else TOOL_ERROR))
    return _end(turn, "timeout" if answer.status == "timeout" else "failed", code,
                f"call {answer.call_id} was to end the turn and was not answered: {error.get('message')}", now)  # fmt: skip


def _stop(turn: Turn, reason: str, now: datetime) -> tuple[Turn, list[Effect]]:
    turn = replace(turn, phase=step(turn.phase, "halt"))
    error: JsonObject = {"code": CANCELED, "message": reason, "recoverable": False}
    said = _draft(turn, "terminated", {"status": "canceled", "outputs": []}, now)
    return turn, [Emit((said,)), Deliver("canceled", deliverable_of_error(error), error=error)]


def _through(turn: Turn, now: datetime, steps: list[tuple[str, JsonObject, str]]) -> tuple[Turn, list[Draft]]:
    """Each step's signal is said in the phase that it ends; its cue moves the turn on."""
    drafts = []
    for name, payload, cue in steps:
        drafts.append(_draft(turn, name, payload, now))
        turn = replace(turn, phase=step(turn.phase, cue))
    return turn, drafts


def _end(
    turn: Turn, outcome: Outcome, code: str, message: str, now: datetime, *, is_recoverable: bool = False
) -> tuple[Turn, list[Effect]]:
    details: JsonObject = {"phase": str(turn.phase), "scope": "turn"}
    error: JsonObject = {"code": code, "message": message, "recoverable": is_recoverable}
    if code == TIMEOUT:
        error["details"] = details
    said = _draft(
        turn, "error", {"error_code": code, "message": message, "recoverable": is_recoverable, "details": details}, now
    )
    turn = replace(turn, phase=step(turn.phase, "error_unrecoverable"))
    drafts = (said, _draft(turn, "terminated", {"status": outcome, "outputs": []}, now))
    return turn, [Emit(drafts), Deliver(outcome, deliverable_of_error(error), error=error)]


def _draft(turn: Turn, name: str, payload: JsonObject, now: datetime) -> Draft:
    return Draft(name, payload, turn.agent, turn.activation_id, now)
