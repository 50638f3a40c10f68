"""The ends of a turn: with an output, by an error, by a stop. A terminate hook runs before the end. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from heliograph.codes import (
    BUDGET_EXCEEDED,
    CALL_TIMEOUTS,
    CANCELED,
    RESOURCE_EXHAUSTED,
    TIMEOUT,
    HaltReason,
    code_in_phase,
)
from heliograph.records import Outcome
from heliograph.signals.model import Draft
from heliograph.signals.payload import truncated
from heliograph.turn.deliverable import deliverable_of, deliverable_of_error
from heliograph.turn.events import Act, Deliver, Effect, Emit, RecordPhase
from heliograph.turn.halt_reasons import halt_reason_of_limit
from heliograph.turn.phase_signals import Turn, draft, error_draft
from heliograph.turn.phases import Phase, next_phase
from heliograph.turn.rounds import Rounds, TurnEnd
from heliograph.types import Json, JsonObject


def good_end(outcome: Outcome, output: Json, limit: JsonObject | None, status: str = "") -> TurnEnd:
    """The end of a turn with an output. limit: the limit that cut it short."""
    limit_field: JsonObject = {} if limit is None else {"limit": limit}
    return TurnEnd(status or outcome, Deliver(outcome, {**deliverable_of(output), **limit_field}, output), limit)


def fail(
    turn: Turn, outcome: Outcome, code: str, message: str, now: datetime, *, is_recoverable: bool = False,
    scope: str = "turn", details: JsonObject | None = None, halt: HaltReason | None = None,
) -> tuple[Turn, list[Effect]]:  # fmt: skip
    """End a turn that cannot succeed. scope: of a timeout. A code of another phase is replaced by that of this phase.

    is_recoverable: applies unless the agent has a policy for the code.
    halt: the reason of a halt to log before the error.
    """
    place: JsonObject = {"phase": str(turn.phase), "scope": "call" if code in CALL_TIMEOUTS else scope}
    own = {} if details is None else details
    code, given = code_in_phase(code, turn.phase), code
    if code != given:
        own = {**own, "original_code": given}
    error: JsonObject = {"code": code, "message": message, "recoverable": turn.recoverable.get(code, is_recoverable)}
    if code == TIMEOUT or own:
        error["details"] = {**own, **place} if code == TIMEOUT else own
    logged, rounds = [*halts(turn, halt, message, now), error_draft(turn, error, {**own, **place}, now)], turn.rounds
    end = TurnEnd(outcome, Deliver(outcome, deliverable_of_error(error), error=error))
    if rounds is None:
        return deliver(replace(turn, phase=next_phase(turn.phase, "error_unrecoverable")), logged, end, now)
    if rounds.end is not None:  # the terminate hook is over, and its turn could not be delivered
        return deliver(turn, logged, end, now)
    if rounds.acted is not None and _delivers_best(rounds, code):
        end = good_end("partial", rounds.acted["output"], error)
    record_id = rounds.record_id(turn.phase)
    turn = replace(turn, phase=next_phase(turn.phase, "error_unrecoverable"))
    turn, effects = terminate(turn, logged, end, now, (record_id, None))
    failure: JsonObject = {**error, "outcome": outcome, "scope": scope}
    return turn, [replace(each, error=failure) if isinstance(each, RecordPhase) else each for each in effects]


def halts_of_limit(turn: Turn, limit: JsonObject | None, now: datetime) -> list[Draft]:
    """Return the halt of a turn that a budget has cut short and that still ends with an output."""
    return [] if limit is None else halts(turn, halt_reason_of_limit(limit), str(limit["message"]), now)


def halts(turn: Turn, reason: HaltReason | None, message: str, now: datetime) -> list[Draft]:
    """Return the halt with which the runtime ends a turn; none without a reason. It is graceful, because the cleanup runs."""
    if reason is None:
        return []
    return [draft(turn, "halt", {"reason": reason, "graceful": True, "message": message}, now)]


def _delivers_best(rounds: Rounds, code: str) -> bool:
    """Whether a turn that fails with this code ends with its last output."""
    if code == TIMEOUT:
        return rounds.lifecycle.on_timeout == "deliver_best"
    return code in (RESOURCE_EXHAUSTED, BUDGET_EXCEEDED) and rounds.lifecycle.on_resource_exhausted == "deliver_best"


def stop(turn: Turn, reason: str, now: datetime) -> tuple[Turn, list[Effect]]:
    """End a stopped turn. One whose outcome was decided before keeps it, without the rest of its terminate hook."""
    error: JsonObject = {"code": CANCELED, "message": reason, "recoverable": False}
    end = TurnEnd("canceled", Deliver("canceled", deliverable_of_error(error), error=error))
    if turn.rounds is not None and turn.rounds.end is not None:
        return deliver(turn, (), turn.rounds.end, now)
    turn = replace(turn, phase=next_phase(turn.phase, "halt"))
    if turn.rounds is None or Phase.TERMINATE not in turn.rounds.hooks:
        return deliver(turn, (), end, now)
    return replace(turn, rounds=replace(turn.rounds, end=end)), [Act()]


def terminate(
    turn: Turn, drafts: list[Draft], end: TurnEnd, now: datetime, record: tuple[str, JsonObject | None] | None = None
) -> tuple[Turn, list[Effect]]:
    """Decide the end of the turn; an agent with a terminate hook runs it first. record: the id and the value of the phase that ended."""
    if turn.rounds is None or Phase.TERMINATE not in turn.rounds.hooks or record is None:
        return deliver(turn, drafts, end, now)
    return replace(turn, rounds=replace(turn.rounds, end=end)), [RecordPhase(*record, tuple(drafts)), Act()]


def deliver(turn: Turn, drafts: Sequence[Draft], end: TurnEnd, now: datetime) -> tuple[Turn, list[Effect]]:
    """Emit the drafts and `terminated`, and deliver."""
    outputs: list[Json] = [] if end.deliver.output is None else [truncated(end.deliver.output)]
    limit_field: JsonObject = {} if end.limit is None else {"limit": end.limit}
    terminated = draft(turn, "terminated", {"status": end.status, "outputs": outputs, **limit_field}, now)
    return turn, [Emit((*drafts, terminated)), end.deliver]
