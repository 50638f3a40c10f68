"""The results of the kernel's functions, as frozen structs that msgspec decodes."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

import msgspec

RunStatus = Literal["running", "terminating", "ended"]
Outcome = Literal["success", "failed", "canceled", "timeout", "partial"]
CallKind = Literal["tool", "inline", "child", "timer", "human"]
CallStatus = Literal["success", "failed", "timeout", "unknown", "canceled"]


class Card(msgspec.Struct, frozen=True):
    """A card of a box. turn_id, epoch: the turn that wrote it; None for a card from outside."""

    card_id: str
    kind: str
    content: Any
    position: int
    created_at: datetime
    turn_id: str | None = None
    epoch: int | None = None


class RunView(msgspec.Struct, frozen=True):
    """The run as a reaction reads it.

    version: the commit of the reaction fails if it has changed since. memory: what reactions store between signals.
    pending_reactions: the number of signals without a reaction yet.
    """

    run_id: str
    status: RunStatus
    version: int
    state: dict[str, Any]  # a JSON object; msgspec cannot build decoders from a recursive alias
    memory: dict[str, Any]
    open_turns: int
    pending_reactions: int
    activations: int


class Cause(msgspec.Struct, frozen=True, omit_defaults=True):
    """The signal that activated a turn."""

    id: str
    name: str
    payload: Any
    agent: str | None = None
    trust: str | None = None  # "untrusted" if it follows from untrusted content
    turn_id: str | None = None  # the turn that emitted it


class InboxRow(msgspec.Struct, frozen=True):
    """A message in the inbox of a turn's agent."""

    message_type: str
    correlation_id: str


class Wait(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call that a turn has opened. content: the result's card, once the call is resolved.

    resolved_position: its place among the turn's results in the order of arrival, from 1. taint: the untrusted sources
    that the turn had read when it opened the call. opened_at, resolved_at: of a call that is not inline, or that was open when
    the kernel ended its turn; otherwise None.
    """

    call_id: str
    tool: str
    kind: CallKind
    state: Literal["open", "resolved", "closed"]
    epoch: int
    step_id: str | None = None
    effect: str = "once"
    status: CallStatus | None = None
    card_id: str | None = None
    content: Any = None
    resolved_position: int | None = None
    after_execution: Literal["suspend", "terminate"] = "suspend"
    may_override: bool = False
    taint: list[str] | None = None
    opened_at: datetime | None = None
    resolved_at: datetime | None = None


class BudgetShortfall(msgspec.Struct, frozen=True):
    """A budget of which too little remains. kind: tokens, calls, or money in millionths of a dollar."""

    turn_id: str
    kind: str
    amount_max: int
    used: int
    reserved: int
    overspent: int = 0

    @property
    def remaining(self) -> int:
        return max(self.amount_max - self.used - self.reserved - self.overspent, 0)

    @property
    def remaining_later(self) -> int:
        """The remaining amount, as if the current reservations were not used."""
        return max(self.amount_max - self.used - self.overspent, 0)


class StopOrder(msgspec.Struct, frozen=True):
    """A graceful stop: the owner has to end the turn as canceled. After the grace period, the kernel ends it."""

    reason: str | None = None


class Claimed(msgspec.Struct, frozen=True, omit_defaults=True):
    """A claimed turn with everything that its execution needs.

    epoch: the fencing token. waits: the turn's calls in the order in which they were opened. defer_count: how often it was deferred.
    budget: the rest of its budgets, by kind; None without budgets. has_emitted_signals: whether an earlier owner has logged
    anything except suspensions. age_seconds: the time since the first claim. earlier_epoch: that of the claim before. depth: how many delegations led to the turn.
    stop: a graceful stop that came while nobody owned the turn.
    """

    agent_id: str
    agent: str
    run_id: str
    target: str
    turn_id: str
    epoch: int
    priority: int
    attempts: int
    max_attempts: int
    ttl_seconds: float
    context_box_id: str | None
    output_box_id: str
    activation_id: str
    cause: Cause
    inbox: list[InboxRow]
    run: RunView
    waits: list[Wait] = []
    defer_count: int = 0
    result_fields: list[dict[str, Any]] | None = None
    parent_turn_id: str | None = None
    depth: int = 0
    message_type: Literal["turn", "ui_action"] = "turn"
    budget: dict[str, int] | None = None
    has_emitted_signals: bool = False
    age_seconds: float = 0.0
    earlier_epoch: int | None = None
    stop: StopOrder | None = None


class StreamedSignal(msgspec.Struct, frozen=True):
    """A signal of a model call of an earlier turn: harness:start or text:delta."""

    name: str
    payload: Any


class EarlierTurn(msgspec.Struct, frozen=True, omit_defaults=True):
    """An ended turn of a conversation. seq: the position of its activation. cause: its message. content: of its deliverable.

    waits: its calls with their results. streamed: what the models of a turn without an output had streamed.
    """

    turn_id: str
    seq: int
    cause: Cause
    outcome: Outcome
    content: Any
    waits: list[Wait] = []
    streamed: list[StreamedSignal] | None = None


class CallRejection(msgspec.Struct, frozen=True):
    """Why a circuit breaker or a rate limit did not admit a call.

    circuit: {type, target, state, until, retry_seconds}. rate: {kind, name, count, seconds, amount, retry_seconds}.
    """

    message: str
    circuit: dict[str, Any] | None = None
    rate: dict[str, Any] | None = None


class WriteResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of a write under a lease.

    run: after a conflict, the current run. stop: after a renewal or with 'stopping', the pending stop order. waits: all calls of a turn that does
    not have to suspend, because none is open. code, message: why the write was rejected. budget: the budget of which too little
    remains, if that is the reason. circuit, rate: the first breaker or rate limit that did not admit a call. calls: all such calls, with
    their messages and breakers or limits, by their ids. begun: the answers to the intents of a recorded result.
    """

    turn_id: str
    outcome: Literal[
        "ok", "stale", "conflict", "duplicate", "rejected", "stopped", "stopping", "suspended", "resolved", "deferred", "exhausted",
    ]  # fmt: skip
    targets: list[str] = []
    first_seq: int | None = None
    run: RunView | None = None
    stop: StopOrder | None = None
    waits: list[Wait] = []
    code: str = ""
    message: str = ""
    budget: BudgetShortfall | None = None
    circuit: dict[str, Any] | None = None
    rate: dict[str, Any] | None = None
    calls: dict[str, CallRejection] = {}
    begun: list[BeginResult] = []


class BeginResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of begin_call: whether the effect may start now, or its recorded result.

    rate: {starts_at, wait_seconds} of a call with rate limits; the bucket that rejected the call, if one did.
    """

    outcome: Literal["fresh", "again", "done", "in_doubt", "stale", "rejected"]
    status: CallStatus | None = None
    content: Any = None
    code: str = ""
    message: str = ""
    budget: BudgetShortfall | None = None
    circuit: dict[str, Any] | None = None
    rate: dict[str, Any] | None = None


class Reported(msgspec.Struct, frozen=True):
    """The result of one report."""

    turn_id: str
    call_id: str
    outcome: Literal[
        "applied", "early", "duplicate", "late", "turn_done", "unknown_turn", "unknown_call", "bad_token", "invalid",
        "rejected",
    ]  # fmt: skip
    resumed: bool = False
    targets: list[str] = []
    code: str = ""
    message: str = ""


class TurnStop(msgspec.Struct, frozen=True):
    """The result of the stop of one turn.

    owner: the worker that has to end the turn, or has just lost it. turn_outcome: the outcome of a turn that had already ended.
    """

    turn_id: str
    outcome: Literal["stopped", "stopping", "already_done", "unknown_turn"]
    owner: str | None = None
    turn_outcome: str | None = None


class RunStop(msgspec.Struct, frozen=True):
    """The result of the stop of one run. run_outcome: the outcome of a run that had already ended."""

    run_id: str
    outcome: Literal["stopping", "already_done", "unknown_run", "no_session"]
    run_outcome: str | None = None


class SweepFailure(msgspec.Struct, frozen=True):
    """A turn whose data made a sweep fail. ended: whether the turn has ended as failed for that reason."""

    turn_id: str
    code: str
    message: str
    ended: bool = False


class SweepResult(msgspec.Struct, frozen=True):
    """The turns that a sweep moved, by what happened to them; each sweep has some of these lists.

    owners: the workers that have to end a turn, or have just lost one. after: where the next sweep of stuck turns continues; None
    for the beginning.
    """

    recovered: list[str] = []
    ended: list[str] = []
    resolved: list[str] = []
    resumed: list[str] = []
    stopped: list[str] = []
    stopping: list[str] = []
    dispatched: list[str] = []
    failed: list[SweepFailure] = []
    owners: list[str] = []
    after: str | None = None

    @property
    def has_moved(self) -> bool:
        """Whether the sweep moved a turn. A dispatched turn does not count, because it causes no further moves."""
        return any((self.recovered, self.ended, self.resolved, self.resumed, self.stopped, self.stopping))


class EndedTurn(msgspec.Struct, frozen=True):
    """A turn that the kernel has ended, as its trace needs it.

    cause_turn_id: the turn that emitted its cause. claimed_at: its first claim; None without one. calls: those that are not inline,
    without their results, and the inline calls that were open at its end.
    """

    parent_turn_id: str | None = None
    parent_call_id: str | None = None
    cause_turn_id: str | None = None
    claimed_at: datetime | None = None
    calls: list[Wait] = []


class PendingSignal(msgspec.Struct, frozen=True):
    """A signal without a reaction yet. ended: the turn whose end it is, if the kernel has ended it."""

    seq: int
    name: str
    payload: Any
    agent: str | None = None
    turn_id: str | None = None
    ended: EndedTurn | None = None


class RunFailure(msgspec.Struct, frozen=True):
    """Why a run ends as failed, even without a failed turn. code: from the table of runs in docs/reference/errors.md."""

    code: str
    message: str


class PendingRun(msgspec.Struct, frozen=True):
    """A run with pending reactions, and the signals that need them. failure: why its signals, state and memory are missing."""

    target: str
    run: RunView
    signals: list[PendingSignal]
    failure: RunFailure | None = None


class CheckpointMemory(msgspec.Struct, frozen=True):
    """The parts of a run's memory that a fork takes over. join_signals, join_base: see `JoinedSignals`."""

    joins: dict[str, list[int]] = {}
    join_signals: dict[str, dict[str, int | str]] = {}
    join_base: int | None = None
    turns: int = 0
    failed: int = 0
    partial: int = 0
    skipped: int = 0
    untrusted_keys: list[str] = []
    session: str | None = None


class Checkpoint(msgspec.Struct, frozen=True):
    """What a run knew after one of its commits: at position `seq`, with no reaction pending.

    activations: how many turns the log had activated. in_progress: the positions of the
    activations whose turns had not ended.
    """

    run_id: str
    seq: int
    state: dict[str, Any]
    memory: CheckpointMemory
    activations: int
    in_progress: list[int]
