"""The events and effects of a running turn: values only. `machine.advance` maps an event to effects."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct, field

from heliograph.codes import HaltReason
from heliograph.records import Outcome
from heliograph.signals.model import Draft
from heliograph.turn.calls import CallRequest, CallResult, Join
from heliograph.types import Json, JsonObject


class Hydrated(Struct, frozen=True):
    """Event: a worker claimed the turn and read everything that it needs.

    recoveries: how often the turn lost its worker before. is_resumed: the turn acted before, then it was suspended or
    deferred. terminating_result: the result of a call with `after="terminate"`, which ends the turn. awaits_terminating:
    another such call of the same step has no result yet, so the turn waits for it. problem: why its context box cannot be
    read. has_emitted_signals: an earlier owner has logged signals, of which the first are those of the phases before act.
    """

    recoveries: int
    may_run_again: bool
    is_run_over: bool
    is_resumed: bool = False
    terminating_result: CallResult | None = None
    awaits_terminating: bool = False
    problem: str | None = None
    has_emitted_signals: bool = False


class Acted(Struct, frozen=True):
    """Event: the agent returned `output`. is_partial: a limit cut its work short. limit: that limit, as an error object."""

    output: Json
    is_partial: bool = False
    limit: JsonObject | None = None


class Raised(Struct, frozen=True):
    """Event: the turn cannot succeed; `outcome` is failed, timeout or canceled.

    scope: of a timeout: turn, phase or total. details: of the error, for programs. halt: the reason of a halt, if a budget or a
    rule of the runtime ends the turn.
    """

    outcome: Outcome
    code: str
    message: str
    is_recoverable: bool = False
    scope: str = "turn"
    details: JsonObject = field(default_factory=dict)
    halt: HaltReason | None = None


class PhaseEnded(Struct, frozen=True):
    """Event: the current phase of an agent with hooks ended, now or in an earlier run of the turn.

    value: its result, as it is recorded: the plan, the result of act, the decision, or the output of the terminate hook.
    """

    value: JsonObject | None = None


class Resolved(Struct, frozen=True):
    """Event: all results arrived before the turn could suspend, so the agent continues. Fields as in Hydrated."""

    terminating_result: CallResult | None = None
    awaits_terminating: bool = False


class Stopped(Struct, frozen=True):
    """Event: someone stopped the turn, and its work has been cancelled."""

    reason: str


class SuspendTurn(Struct, frozen=True):
    """Event of an agent that waits, and the effect: open `calls` and release the turn until a result arrives.

    calls: the calls that are not recorded yet. join: resume after all open calls, or after each.
    """

    calls: tuple[CallRequest, ...]
    join: Join


class DeferTurn(Struct, frozen=True):
    """Event of an agent that cannot continue now, and the effect: release the turn for some seconds.

    at_most: the number of deferrals allowed; None for the project's limit.
    """

    reason: str
    seconds: float
    at_most: int | None = None


class Emit(Struct, frozen=True):
    """Effect: log these signals with the next commit of the turn."""

    drafts: tuple[Draft, ...]


class RecordPhase(Struct, frozen=True):
    """Effect: commit the end of a phase with its signals, once. call_id: of its record. error: of a phase that failed."""

    call_id: str
    value: JsonObject | None
    drafts: tuple[Draft, ...]
    error: JsonObject | None = None


class Act(Struct, frozen=True):
    """Effect: run the agent; for an agent with hooks, its current phase.

    The next event is Acted or PhaseEnded, Raised, SuspendTurn or DeferTurn.
    """


class Deliver(Struct, frozen=True):
    """Effect: end the turn; commit its deliverable, its signals and the reaction to them together."""

    outcome: Outcome
    content: JsonObject
    output: Json = None
    error: JsonObject | None = None


Event: TypeAlias = Hydrated | Acted | PhaseEnded | Raised | Resolved | Stopped | SuspendTurn | DeferTurn
Effect: TypeAlias = Emit | RecordPhase | Act | Deliver | SuspendTurn | DeferTurn
