"""The transitions of an agent with hooks, from the end of one phase to the next. Pure.

A phase without a hook passes at once, and its signal is recorded together with that of the phase before.
"""

from __future__ import annotations

from datetime import datetime
from typing import TypeAlias

from msgspec.structs import replace

from heliograph.codes import MAX_ITERATIONS, TOOL_ERROR
from heliograph.records import Outcome
from heliograph.signals.model import Draft
from heliograph.turn.deliverable import deliverable_of_error
from heliograph.turn.events import Act, Deliver, Effect, RecordPhase
from heliograph.turn.phase_signals import (
    Turn,
    action_complete,
    error_draft,
    plan_ready,
    ready,
    reflection_complete,
    through,
)
from heliograph.turn.phases import RESUME_AT_ACT, BadTransition, Phase
from heliograph.turn.rounds import Rounds, TurnEnd
from heliograph.turn.turn_ends import deliver, good_end, halts_of_limit, terminate
from heliograph.types import JsonObject

# The id and the value of the phase that ended.
_Record: TypeAlias = tuple[str, JsonObject | None]


def phase_ended(turn: Turn, value: JsonObject | None, now: datetime) -> tuple[Turn, list[Effect]]:
    """Go on to the next phase that has work. Phases without a hook pass at once, and their signals are recorded together."""
    rounds = turn.rounds
    if rounds is None:
        raise BadTransition(f"agent {turn.agent} has no hooks, so none of its phases ends by itself")
    record_id = rounds.record_id(turn.phase)
    if turn.phase is Phase.TERMINATE:
        assert rounds.end is not None
        return deliver(turn, (), _with_output(rounds.end, value), now)
    if turn.phase is Phase.REFLECT:
        return _reflected(turn, rounds, value or {}, (record_id, value), now)
    drafts: list[Draft] = []
    if turn.phase is Phase.INIT:
        turn, drafts = through(turn, now, [ready(turn)])
    elif turn.phase is Phase.PLAN:
        turn, drafts = through(replace(turn, rounds=replace(rounds, plan=value)), now, [plan_ready(value)])
    else:
        turn, drafts = through(replace(turn, rounds=replace(rounds, acted=value)), now, [action_complete(value)])
        if Phase.REFLECT not in rounds.hooks:
            return _unreflected(turn, value or {}, drafts, (record_id, value), now)
    return _next_round_phase(turn, drafts, (record_id, value), now)


def _next_round_phase(turn: Turn, drafts: list[Draft], record: _Record, now: datetime) -> tuple[Turn, list[Effect]]:
    """Record a phase, and run the next one; an agent without a plan hook has no plan."""
    if turn.phase is Phase.PLAN and turn.rounds is not None and Phase.PLAN not in turn.rounds.hooks:
        turn, more = through(turn, now, [plan_ready(None)])
        drafts = [*drafts, *more]
    return turn, [RecordPhase(*record, tuple(drafts)), Act()]


def _unreflected(
    turn: Turn, acted: JsonObject, drafts: list[Draft], record: _Record, now: datetime
) -> tuple[Turn, list[Effect]]:
    """Decide without a reflect hook: the goal is achieved unless a limit or a failed step cut the work short."""
    limit = acted.get("limit")
    is_whole = not acted["is_partial"] and acted["success"]
    if limit is None and not is_whole:
        limit = {"code": TOOL_ERROR, "message": "not all steps succeeded", "recoverable": False}
    assert limit is None or isinstance(limit, dict)
    outcome: Outcome = "success" if is_whole else "partial"
    decision, cue = decide(outcome, limit)
    turn, more = through(turn, now, [("reflection_complete", decision, cue)])
    halted = halts_of_limit(turn, limit, now)
    return terminate(turn, [*drafts, *more, *halted], good_end(outcome, acted["output"], limit), now, record)


def _reflected(
    turn: Turn, rounds: Rounds, decision: JsonObject, record: _Record, now: datetime
) -> tuple[Turn, list[Effect]]:
    """Terminate, or begin another round. A turn that may not iterate again is incomplete: its goal is not achieved."""
    output = (rounds.acted or {}).get("output")
    if decision["decision"] == "goal_achieved":
        turn, drafts = through(turn, now, [reflection_complete(decision, "goal_achieved")])
        output = output if decision["output"] is None else decision["output"]
        return terminate(turn, drafts, good_end("success", output, None), now, record)
    if rounds.count < rounds.lifecycle.max_iterations:
        cue = RESUME_AT_ACT if decision["resume_at"] == "act" else "iteration_needed"
        turn, drafts = through(turn, now, [reflection_complete(decision, cue)])
        turn = replace(turn, rounds=replace(rounds, count=rounds.count + 1))
        return _next_round_phase(turn, drafts, record, now)
    message = f"the goal was not achieved after {rounds.count} iterations (max_iterations): {decision['reason']}"
    error: JsonObject = {
        "code": MAX_ITERATIONS,
        "message": message,
        "recoverable": turn.recoverable.get(MAX_ITERATIONS, False),
    }
    logged = error_draft(turn, error, {"phase": str(turn.phase), "scope": "turn"}, now)
    turn, drafts = through(turn, now, [reflection_complete(decision, "error_unrecoverable")])
    end = TurnEnd("incomplete", Deliver("failed", deliverable_of_error(error), error=error))
    if rounds.lifecycle.on_max_iterations == "deliver_best":
        end = good_end("partial", output, error, "incomplete")
    return terminate(turn, [*drafts, logged], end, now, record)


def _with_output(end: TurnEnd, value: JsonObject | None) -> TurnEnd:
    """The end of a turn with the output of its terminate hook, if it returned one and the turn has an output."""
    if value is None or value["output"] is None or end.deliver.error is not None:
        return end
    return good_end(end.deliver.outcome, value["output"], end.limit, end.status)


def decide(outcome: Outcome, limit: JsonObject | None) -> tuple[JsonObject, str]:
    """The decision of phase reflect, and its cue. A turn that a limit cut short has not reached its goal."""
    if outcome == "success":
        return {"decision": "goal_achieved"}, "goal_achieved"
    reason = "a limit was reached before the agent was done" if limit is None else str(limit.get("message"))
    return {"decision": "iteration_needed", "reason": reason}, "halt"
