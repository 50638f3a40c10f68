"""The state machine of a turn, without IO: `advance` maps the turn and an event to the next state and its effects.

    Hydrated     ready, plan_ready -> Act; error -> Deliver(failed) where the context box cannot be read
    Acted        action_complete, reflection_complete, terminated -> Deliver(success or partial)
    Raised       error, terminated -> Deliver(failed, timeout or canceled)
    Stopped      terminated -> Deliver(canceled); the log already holds the halt
    SuspendTurn  -> SuspendTurn; where all results are already there, Resolved follows -> Act
    DeferTurn    -> DeferTurn

An agent with hooks runs phase by phase. Its turn stays in a phase until that phase ends:

    Hydrated     -> Act
    PhaseEnded   the signal of the phase -> RecordPhase, Act in the next phase; after the last one -> Deliver
    Raised       error -> RecordPhase, Act in terminate; -> Deliver if terminate has no hook
    Stopped      -> Act in terminate; -> Deliver if terminate has no hook

Every turn goes through the five phases. A phase without work costs no commit: its signal is part of the next
commit. A turn goes straight to terminate where it may not run again after a crash, or its run is over.
A suspended turn stays in act. When a worker claims it again, it continues there, or delivers the result of a
call that ends it.
"""

from __future__ import annotations

from datetime import datetime
from typing import assert_never

from msgspec.structs import replace

from heliograph.codes import CANCELED, IN_DOUBT, INIT_FAILED, TOOL_ERROR, TOOL_TIMEOUT
from heliograph.error_text import counted
from heliograph.records import Outcome, Wait
from heliograph.turn.calls import CallResult
from heliograph.turn.events import (
    Act,
    Acted,
    DeferTurn,
    Effect,
    Emit,
    Event,
    Hydrated,
    PhaseEnded,
    Raised,
    Resolved,
    Stopped,
    SuspendTurn,
)
from heliograph.turn.phase_records import event_of, following_of
from heliograph.turn.phase_signals import ONE_STEP_EXECUTED, ONE_STEP_PLANNED, Turn, through
from heliograph.turn.phases import BadTransition, Phase
from heliograph.turn.round_transitions import decide, phase_ended
from heliograph.turn.turn_ends import deliver, fail, good_end, halts_of_limit, stop, terminate
from heliograph.types import Json, JsonObject


def advance(turn: Turn, event: Event, now: datetime) -> tuple[Turn, list[Effect]]:
    """The turn after `event`, and its effects in order. Raises BadTransition for an event that this phase does not allow."""
    match event:
        case Hydrated():
            return _hydrated(turn, event, now)
        case Acted():
            return _succeed(turn, event.output, now, "partial" if event.is_partial else "success", event.limit)
        case PhaseEnded():
            return phase_ended(turn, event.value, now)
        case Raised():
            return fail(turn, event.outcome, event.code, event.message, now, is_recoverable=event.is_recoverable,
                        scope=event.scope, details=event.details, halt=event.halt)  # fmt: skip
        case Stopped():
            return stop(turn, event.reason, now)
        case SuspendTurn() | DeferTurn():
            _check_acting(turn, event)
            return turn, [event]
        case Resolved():
            _check_acting(turn, event)
            return _continue(turn, event, now)
        case _:
            assert_never(event)


def turn_after(turn: Turn, end: Wait, memory: JsonObject, now: datetime) -> Turn | None:
    """The turn after a recorded end of a phase; None where this version of the agent has other phases at this point.

    memory: the working memory after it.
    """
    rounds = turn.rounds
    if rounds is None or turn.phase is Phase.TERMINATE or rounds.record_id(turn.phase) != end.call_id:
        return None
    following, _ = advance(turn, event_of(end, memory), now)
    if following.rounds is None or (following.phase is Phase.TERMINATE and following.rounds.end is None):
        return None
    recorded = following_of(end)  # a hook that was added or removed since then would repeat signals, or omit them
    return following if recorded in (None, following.rounds.record_id(following.phase)) else None


def _hydrated(turn: Turn, event: Hydrated, now: datetime) -> tuple[Turn, list[Effect]]:
    if event.is_run_over:
        return fail(turn, "canceled", CANCELED, "the run ended before this turn began", now)
    if event.recoveries and not event.may_run_again:
        if turn.rounds is not None and turn.rounds.end is not None:
            return deliver(turn, (), turn.rounds.end, now)
        message = f"lost its worker {counted(event.recoveries, 'time')}; whether its effect happened is not known, and it may not run twice"
        return fail(turn, "failed", IN_DOUBT, message, now)
    if event.is_resumed and turn.rounds is None:
        if turn.phase is not Phase.INIT:
            raise BadTransition(f"phase {turn.phase} does not allow the event Hydrated: only a new turn starts with it")
        turn = replace(turn, phase=Phase.ACT)
    if event.problem is not None and turn.phase is not Phase.TERMINATE:
        return fail(turn, "failed", INIT_FAILED, event.problem, now)
    if turn.rounds is not None:
        return turn, [Act()]
    if event.is_resumed:
        return _continue(turn, event, now)
    turn, drafts = through(turn, now, (("ready", turn.ready, "ready"), ONE_STEP_PLANNED))
    return turn, [Act()] if event.has_emitted_signals else [Emit(tuple(drafts)), Act()]


def _continue(turn: Turn, event: Hydrated | Resolved, now: datetime) -> tuple[Turn, list[Effect]]:
    """Continue a turn with new results: the agent acts, a result ends the turn, or the turn waits for another ending result."""
    if event.awaits_terminating:
        return turn, [SuspendTurn((), "each")]
    return (turn, [Act()]) if event.terminating_result is None else _conclude(turn, event.terminating_result, now)


def _check_acting(turn: Turn, event: Event) -> None:
    if turn.phase is not Phase.ACT and turn.rounds is None:
        raise BadTransition(f"phase {turn.phase} does not allow the event {type(event).__name__}: only phase act does")


def _succeed(
    turn: Turn, output: Json, now: datetime, outcome: Outcome = "success", limit: JsonObject | None = None
) -> tuple[Turn, list[Effect]]:
    decision, cue = decide(outcome, limit)
    turn, drafts = through(turn, now, (ONE_STEP_EXECUTED, ("reflection_complete", decision, cue)))
    return terminate(turn, [*drafts, *halts_of_limit(turn, limit, now)], good_end(outcome, output, limit), now)


def _conclude(turn: Turn, result: CallResult, now: datetime) -> tuple[Turn, list[Effect]]:
    """End a turn with the result of a call with after="terminate"."""
    if result.is_good:
        return _succeed(turn, result.output, now, "success" if result.status == "success" else "partial")
    error = result.error or {}
    code = str(error.get("code") or (TOOL_TIMEOUT if result.status == "timeout" else TOOL_ERROR))
    return fail(turn, "timeout" if result.status == "timeout" else "failed", code,
                f"call {result.call_id}, which was to end the turn, did not succeed: {error.get('message')}", now)  # fmt: skip
