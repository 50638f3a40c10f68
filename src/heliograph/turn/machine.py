"""The state machine of a turn, without IO: `advance` maps the turn and an event to the next state and its effects.

    Hydrated     ready, plan_ready -> Act; error -> Deliver(failed) where the context box cannot be read
    Acted        action_complete, reflection_complete, terminated -> Deliver(success or partial)
    Raised       error, terminated -> Deliver(failed, timeout or canceled)
    Stopped      terminated -> Deliver(canceled); the log already holds the halt
    SuspendTurn  -> SuspendTurn; where all results are already there, Resolved follows -> Act
    DeferTurn    -> DeferTurn

Every turn goes through the five phases. A phase without work costs no commit: its signal is part of the next
commit. A turn goes straight to terminate where it may not run again after a crash, or its run is over.
A suspended turn stays in act. When a worker claims it again, it continues there, or delivers the result of a
call that ends it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import assert_never

from heliograph.codes import CANCELED, IN_DOUBT, INIT_FAILED, TIMEOUT, TOOL_ERROR, TOOL_TIMEOUT
from heliograph.records import Outcome
from heliograph.signals.model import Draft
from heliograph.signals.payload import truncated
from heliograph.turn.calls import CallResult
from heliograph.turn.deliverable import deliverable_of, deliverable_of_error
from heliograph.turn.events import (
    Act,
    Acted,
    DeferTurn,
    Deliver,
    Effect,
    Emit,
    Event,
    Hydrated,
    Raised,
    Resolved,
    Stopped,
    SuspendTurn,
)
from heliograph.turn.phases import BadTransition, Phase, next_phase
from heliograph.types import Json, JsonObject


@dataclass(frozen=True, slots=True)
class Turn:
    """The state of the machine. activation_id: the signal that activated the agent. capabilities: its tools and signals."""

    agent: str
    version: str
    activation_id: str
    phase: Phase = Phase.INIT
    capabilities: tuple[str, ...] = ()


def advance(turn: Turn, event: Event, now: datetime) -> tuple[Turn, list[Effect]]:
    """The turn after `event`, and its effects in order. Raises BadTransition for an event that this phase does not allow."""
    match event:
        case Hydrated():
            return _hydrated(turn, event, now)
        case Acted():
            return _succeed(turn, event.output, now, "partial" if event.is_partial else "success", event.limit)
        case Raised():
            return _end(turn, event.outcome, event.code, event.message, now, is_recoverable=event.is_recoverable)
        case Stopped():
            return _stop(turn, event.reason, now)
        case SuspendTurn() | DeferTurn():
            _check_acting(turn, event)
            return turn, [event]
        case Resolved():
            _check_acting(turn, event)
            return _continue(turn, event, now)
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
            raise BadTransition(f"phase {turn.phase} does not allow the event Hydrated: only a new turn starts with it")
        turn = replace(turn, phase=Phase.ACT)
    if event.problem is not None:
        return _end(turn, "failed", INIT_FAILED, event.problem, now)
    if event.is_resumed:
        return _continue(turn, event, now)
    turn, drafts = _through(turn, now, [
        ("ready", {"capabilities": list(turn.capabilities), "version": turn.version}, "ready"),
        ("plan_ready", {"steps": 1, "tools_required": []}, "plan_ready"),
    ])  # fmt: skip
    return turn, [Emit(tuple(drafts)), Act()]


def _continue(turn: Turn, event: Hydrated | Resolved, now: datetime) -> tuple[Turn, list[Effect]]:
    """Continue a turn with new results: the agent acts, a result ends the turn, or the turn waits for another ending result."""
    if event.awaits_terminating:
        return turn, [SuspendTurn((), "each")]
    return (turn, [Act()]) if event.terminating_result is None else _conclude(turn, event.terminating_result, now)


def _check_acting(turn: Turn, event: Event) -> None:
    if turn.phase is not Phase.ACT:
        raise BadTransition(f"phase {turn.phase} does not allow the event {type(event).__name__}: only phase act does")


def _succeed(
    turn: Turn, output: Json, now: datetime, outcome: Outcome = "success", limit: JsonObject | None = None
) -> tuple[Turn, list[Effect]]:
    decision, cue = _decide(outcome, limit)
    turn, drafts = _through(turn, now, [
        ("action_complete", {"steps_executed": 1, "success": True}, "action_complete"),
        ("reflection_complete", decision, cue),
    ])  # fmt: skip
    limit_field: JsonObject = {} if limit is None else {"limit": limit}
    outputs: list[Json] = [] if output is None else [truncated(output)]
    drafts.append(_draft(turn, "terminated", {"status": outcome, "outputs": outputs, **limit_field}, now))
    return turn, [Emit(tuple(drafts)), Deliver(outcome, {**deliverable_of(output), **limit_field}, output)]


def _decide(outcome: Outcome, limit: JsonObject | None) -> tuple[JsonObject, str]:
    """The decision of phase reflect, and its cue. A turn that a limit cut short has not reached its goal."""
    if outcome == "success":
        return {"decision": "goal_achieved"}, "goal_achieved"
    reason = "a limit was reached before the agent was done" if limit is None else str(limit.get("message"))
    return {"decision": "iteration_needed", "reason": reason}, "halt"


def _conclude(turn: Turn, result: CallResult, now: datetime) -> tuple[Turn, list[Effect]]:
    """End a turn with the result of a call with after="terminate"."""
    if result.is_good:
        return _succeed(turn, result.output, now, "success" if result.status == "success" else "partial")
    error = result.error or {}
    code = str(error.get("code") or (TOOL_TIMEOUT if result.status == "timeout" else TOOL_ERROR))
    return _end(turn, "timeout" if result.status == "timeout" else "failed", code,
                f"call {result.call_id}, which was to end the turn, did not succeed: {error.get('message')}", now)  # fmt: skip


def _stop(turn: Turn, reason: str, now: datetime) -> tuple[Turn, list[Effect]]:
    turn = replace(turn, phase=next_phase(turn.phase, "halt"))
    error: JsonObject = {"code": CANCELED, "message": reason, "recoverable": False}
    terminated = _draft(turn, "terminated", {"status": "canceled", "outputs": []}, now)
    return turn, [Emit((terminated,)), Deliver("canceled", deliverable_of_error(error), error=error)]


def _through(turn: Turn, now: datetime, steps: list[tuple[str, JsonObject, str]]) -> tuple[Turn, list[Draft]]:
    """Emit the signal of each phase while the turn is in that phase; then its cue moves the turn to the next phase."""
    drafts = []
    for name, payload, cue in steps:
        drafts.append(_draft(turn, name, payload, now))
        turn = replace(turn, phase=next_phase(turn.phase, cue))
    return turn, drafts


def _end(
    turn: Turn, outcome: Outcome, code: str, message: str, now: datetime, *, is_recoverable: bool = False
) -> tuple[Turn, list[Effect]]:
    details: JsonObject = {"phase": str(turn.phase), "scope": "turn"}
    error: JsonObject = {"code": code, "message": message, "recoverable": is_recoverable}
    if code == TIMEOUT:
        error["details"] = details
    logged = _draft(
        turn, "error", {"error_code": code, "message": message, "recoverable": is_recoverable, "details": details}, now
    )
    turn = replace(turn, phase=next_phase(turn.phase, "error_unrecoverable"))
    drafts = (logged, _draft(turn, "terminated", {"status": outcome, "outputs": []}, now))
    return turn, [Emit(drafts), Deliver(outcome, deliverable_of_error(error), error=error)]


def _draft(turn: Turn, name: str, payload: JsonObject, now: datetime) -> Draft:
    return Draft(name, payload, turn.agent, turn.activation_id, now)
