"""The rows that `Reader` returns: one class for each view of the kernel."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from heliograph.control.pool_names import DEFAULT_POOL
from heliograph.records import Claimed


class RunRow(msgspec.Struct, frozen=True):
    """A run. status: running, terminating or ended. outcome: None until the end. pending_reactions: the number of signals without a reaction yet."""

    run_id: str
    target: str
    status: str
    outcome: str | None
    state: dict[str, Any]
    signal_count: int
    open_turns: int
    activations: int
    pending_reactions: int
    created_at: datetime
    ended_at: datetime | None
    forked_from: str | None = None  # the run whose log it continues
    forked_seq: int | None = None  # after this position


class RunProgressRow(msgspec.Struct, frozen=True):
    """The application, the status and the number of signals of a run. status: see `RunRow`."""

    target: str
    status: str
    signal_count: int


class RunTraceRow(msgspec.Struct, frozen=True):
    """What the memory of a run keeps of its caller's trace."""

    trace: dict[str, Any]


class TurnRow(msgspec.Struct, frozen=True):
    """A turn. While it is active, status, owner and lease come from its agent's head.

    owner, lease_until: None unless the turn is running. activity: thinking, executing_tool or awaiting_tool_result, for display.
    pool: the workers that may run it. budgets: the ids of the turns whose budgets apply to it.
    """

    turn_id: str
    agent_id: str
    agent: str
    run_id: str
    target: str
    status: str
    phase: str | None
    owner: str | None
    lease_until: datetime | None
    turn_epoch: int | None
    outcome: str | None
    attempts: int
    max_attempts: int
    deliverable_card_id: str | None
    context_box_id: str | None
    output_box_id: str
    created_at: datetime
    finished_at: datetime | None
    cause_id: str
    activation_id: str
    pool: str = DEFAULT_POOL
    message_type: str = "turn"
    depth: int = 0
    parent_turn_id: str | None = None
    parent_call_id: str | None = None
    defer_count: int = 0
    due_at: datetime | None = None
    waiting_tool_count: int | None = None
    resume_deadline: datetime | None = None
    activity: str | None = None
    current_tool: str | None = None
    stop_requested_at: datetime | None = None
    budgets: list[str] | None = None


class CardRow(msgspec.Struct, frozen=True):
    """A card: a value that a turn stored, such as the arguments or the result of a call."""

    card_id: str
    turn_id: str
    turn_epoch: int
    kind: str
    content: Any
    created_at: datetime


class WaitRow(msgspec.Struct, frozen=True):
    """A call of a turn. state: open, resolved or closed. status: the kind of result, None while the call is open.

    opened_seq: the position of the first signal that was recorded with the call or after it. resolved_seq: that of the last signal
    that was recorded with the result or before it. Both are None for calls of earlier versions.
    """

    turn_id: str
    call_id: str
    agent_id: str
    run_id: str
    step_id: str | None
    tool: str
    kind: str
    effect: str
    state: str
    status: str | None
    deadline: datetime | None
    after_execution: str
    child_turn_id: str | None
    result_card_id: str | None
    resolved_position: int | None
    duplicates: int
    opened_at: datetime
    resolved_at: datetime | None
    opened_seq: int | None = None
    resolved_seq: int | None = None


class BudgetRow(msgspec.Struct, frozen=True):
    """One limit of a turn's budget, in the kernel's units: money in millionths of a US dollar.

    kind: what is counted, for example tokens. amount_max: the limit. overspent: by how much the use exceeded it.
    """

    turn_id: str
    kind: str
    amount_max: int
    used: int
    reserved: int
    overspent: int


class DelegationRow(msgspec.Struct, frozen=True):
    """A delegation: call `call_id` of turn `turn_id` waits for the turn `task_id`.

    status: accepted, in_progress, completed or failed. outcome: success, partial, failed, timeout or canceled; None until the end.
    """

    turn_id: str
    call_id: str
    run_id: str
    agent: str
    task_id: str
    status: str
    outcome: str | None
    deadline: datetime | None
    opened_at: datetime
    resolved_at: datetime | None


CALLBACK_STATES = ("due", "delivered", "dead")


class CallbackRow(msgspec.Struct, frozen=True):
    """A completion webhook for the end of a turn, or of the run if `turn_id` is None. due_at: the time of the next attempt."""

    callback_id: str
    run_id: str
    turn_id: str | None
    url: str
    state: str
    attempts: int
    due_at: datetime | None
    last_error: str | None
    created_at: datetime
    finished_at: datetime | None


class WorkerRow(msgspec.Struct, frozen=True):
    """A worker, and its health by the clock of the database.

    health: healthy or degraded, as the worker has reported; unhealthy, if it has reported that, or if `missed_threshold`
    heartbeats are missing; unknown for a worker without heartbeats. phase: `idle`, or the phase of its oldest turn.
    slots_used: the turns that it runs, of at most `slots`. capabilities: its applications and agents. pools: those that it serves. missed: how many
    heartbeats are missing since the last one, at `beat_at`, `age_seconds` ago.
    """

    worker: str
    label: str
    version: str
    health: str
    phase: str
    slots: int
    slots_used: int
    capabilities: list[str]
    pools: list[str]
    metadata: dict[str, Any]
    metrics: dict[str, Any]
    warnings: list[str]
    interval_seconds: float | None
    missed_threshold: int
    missed: int | None
    age_seconds: float
    started_at: datetime
    beat_at: datetime


class BoxRow(msgspec.Struct, frozen=True):
    """A box. base_box_id: the box that it was forked from. writer_turn_id: the turn whose output box it is."""

    box_id: str
    kind: str
    base_box_id: str | None
    writer_turn_id: str | None
    created_at: datetime


class OpenTurnRow(msgspec.Struct, frozen=True):
    """An open turn. status: queued, dispatched, running or suspended. claimed: as a worker would claim it.

    requests: the arguments of its calls by their ids, as far as the ledger has them; of a delegation {task, context}.
    """

    status: str
    claimed: Claimed
    requests: dict[str, Any] = {}


class EndedTurnRow(msgspec.Struct, frozen=True):
    """An ended turn. claimed: as a worker would claim it with all its results, but without the state of its run.

    content: of its deliverable; None if the kernel ended the turn without one.
    """

    claimed: Claimed
    outcome: str
    content: Any = None


class ActivatedTurn(msgspec.Struct, frozen=True):
    """What a fork needs of a turn: `turn_overview` computes the other columns of TurnRow at some cost."""

    turn_id: str
    agent: str
    outcome: str | None
    context_box_id: str | None
    activation_id: str
    parent_turn_id: str | None
    priority: int
    pool: str
    max_attempts: int
    message_type: str
    actor: str | None
    result_fields: list[dict[str, Any]] | None
    budgets: list[str] | None
    created_at: datetime
    expires_at: datetime


class LeaseRow(msgspec.Struct, frozen=True):
    """One period in which a worker owned a turn. started_seq: the newest signal of the run before it; None for old leases."""

    turn_epoch: int
    owner: str
    started_at: datetime
    ended_at: datetime | None
    started_seq: int | None = None


class RecordingRow(msgspec.Struct, frozen=True):
    """The recording of a run."""

    run_id: str
    target: str
    outcome: str | None
    name: str | None
    tags: list[str]
    started_at: datetime


class RecordedCommitRow(msgspec.Struct, frozen=True):
    """What one commit of a recorded run keeps beside its signals, the first of which is at seq."""

    run_id: str
    seq: int
    count: int
    turn_id: str | None
    body: str
