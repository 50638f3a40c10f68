"""The requests of the kernel's functions: the required and the optional keys of each item.

The kernel rejects an item with any other key (decision 0035). `REQUESTS` names the item of each function; a test compares
its keys with those that the SQL function accepts and with those that its header documents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict

from heliograph.request_items import (
    CallItem,
    CardItem,
    CircuitBreakerItem,
    Failure,
    ForkItem,
    OpenAs,
    RateItem,
    ReactionItem,
    RecordingItem,
    SignalItem,
)
from heliograph.types import Json, JsonObject


class Owner(TypedDict):
    """The turn that a worker owns, and the epoch in which it does."""

    agent_id: str
    turn_id: str
    epoch: int


class StartRun(TypedDict):
    run_id: str
    target: str
    request_hash: str
    agents: list[str]
    wakes_on_results: NotRequired[bool]
    callback_url: NotRequired[str | None]
    signals: list[SignalItem]
    reaction: ReactionItem
    fork: NotRequired[ForkItem | None]
    recording: NotRequired[RecordingItem]


class Message(TypedDict):
    run_id: str
    agent: str
    instance: NotRequired[str | None]
    turn_id: str
    cause: NotRequired[str | None]
    priority: NotRequired[int]
    pool: NotRequired[str | None]
    max_attempts: int
    ttl_seconds: float
    name: str
    payload: NotRequired[Json]
    message_type: NotRequired[str]
    context_box_id: NotRequired[str | None]
    result_fields: NotRequired[Sequence[JsonObject] | None]
    parent_turn_id: NotRequired[str | None]
    actor: NotRequired[str | None]
    budget: NotRequired[Mapping[str, int] | None]
    callback_url: NotRequired[str | None]


class ClaimTarget(TypedDict):
    target: str
    pool: NotRequired[str | None]
    agents: NotRequired[list[str]]
    run_id: NotRequired[str | None]


class Renewal(Owner):
    phase: NotRequired[str | None]


class Release(Owner):
    failure: NotRequired[Failure]


class Append(Owner):
    phase: NotRequired[str | None]
    signals_emitted: NotRequired[int]
    cards: NotRequired[list[CardItem]]
    signals: NotRequired[list[SignalItem]]
    recording: NotRequired[RecordingItem]


class Intent(TypedDict):
    """A call that its owner makes next."""

    call_id: str
    step_id: NotRequired[str]
    tool: str
    effect: NotRequired[str]
    timeout_seconds: NotRequired[float | None]
    taint: NotRequired[list[str] | None]
    is_trusted: NotRequired[bool]
    reserve: NotRequired[Mapping[str, int] | None]
    circuit_breaker: NotRequired[CircuitBreakerItem | None]
    rates: NotRequired[list[RateItem] | None]


class BeginCall(Owner, Intent):
    pass


class RecordCall(Owner):
    call_id: str
    status: str
    result: NotRequired[Json]
    error: NotRequired[JsonObject | None]
    signals: NotRequired[list[SignalItem]]
    signals_emitted: NotRequired[int]
    phase: NotRequired[str | None]
    used: NotRequired[Mapping[str, int] | None]
    rate_tokens: NotRequired[int | None]
    taint: NotRequired[list[str] | None]
    open_as: NotRequired[OpenAs | None]
    terminates: NotRequired[bool]
    recording: NotRequired[RecordingItem]
    intents: NotRequired[list[Intent]]


class ToolItem(TypedDict):
    """A tool, and the pool of its commands."""

    tool: str
    pool: NotRequired[str | None]


class Suspension(Owner):
    phase: NotRequired[str | None]
    signals_emitted: NotRequired[int]
    cards: NotRequired[list[CardItem]]
    signals: NotRequired[list[SignalItem]]
    join: NotRequired[str]
    seen: NotRequired[int]
    terminates: NotRequired[bool]
    calls: NotRequired[list[CallItem]]
    recording: NotRequired[RecordingItem]


class Deferral(Owner):
    reason: NotRequired[str]
    delay_seconds: float
    deferrals_max: NotRequired[int | None]
    trust: NotRequired[str]
    terminates: NotRequired[bool]


class Finish(Owner):
    """The end of a turn. version: that of the run from which the reaction was computed. recording: the body of a RecordingItem."""

    outcome: str
    content: Json
    version: int
    signals: list[SignalItem]
    reaction: ReactionItem
    recording: NotRequired[str]
    follows: NotRequired[str | None]


class StopOptions(TypedDict):
    mode: str
    grace_seconds: NotRequired[float | None]
    reason: NotRequired[str | None]
    actor: NotRequired[str | None]


class Stop(StopOptions):
    turn_id: str


class StopRun(StopOptions):
    run_id: str


class React(TypedDict):
    """A reaction to pending signals. version: that of the run from which it was computed."""

    run_id: str
    version: int
    signals: list[SignalItem]
    reaction: ReactionItem
    recording: NotRequired[RecordingItem]


class Report(TypedDict):
    turn_id: str
    call_id: str
    token: NotRequired[str | None]
    status: str
    result: NotRequired[Json]
    error: NotRequired[JsonObject | None]
    actor: NotRequired[str | None]
    may_still_run: NotRequired[bool | None]


class CallbackAttempt(TypedDict):
    callback_id: str
    attempt: int
    state: str
    error: NotRequired[str]
    again_seconds: NotRequired[float | None]


class PutBox(TypedDict):
    box_id: str
    cards: NotRequired[list[CardItem]]


class ForkBox(TypedDict):
    box_id: str
    base_box_id: str
    writer_turn_id: NotRequired[str | None]


class ReplaceBoxes(Owner):
    context_box_id: NotRequired[str | None]
    output_box_id: NotRequired[str | None]


class Memory(TypedDict):
    memory_id: str
    agent: NotRequired[str | None]
    text: str
    metadata: NotRequired[JsonObject | None]
    trust: NotRequired[str | None]
    ttl_seconds: NotRequired[float | None]


class ForgottenMemory(TypedDict):
    memory_id: str


class Deregistration(TypedDict):
    """A worker that has ended. projects: those that it served, besides the project of the call."""

    worker: str
    projects: NotRequired[list[str]]


class Beat(Deregistration):
    """A heartbeat of a worker, with everything that registers it."""

    label: NotRequired[str]
    version: NotRequired[str]
    capabilities: NotRequired[list[str]]
    pools: NotRequired[list[str]]
    metadata: NotRequired[JsonObject]
    slots: NotRequired[int]
    slots_used: NotRequired[int]
    interval_seconds: NotRequired[float | None]
    missed_threshold: NotRequired[int]
    phase: NotRequired[str]
    status: NotRequired[str]
    metrics: NotRequired[JsonObject]
    warnings: NotRequired[list[str]]


class Position(TypedDict):
    """What a subscriber has processed of a run. lease_seconds: it keeps the run; otherwise nobody takes it for delay_seconds."""

    name: str
    subscriber: str
    run_id: str
    position: int
    lease_seconds: NotRequired[float | None]
    delay_seconds: NotRequired[float | None]


# The item of each function that takes a list of objects.
REQUESTS: Mapping[str, Any] = {
    "start_runs": StartRun, "enqueue": Message, "claim": ClaimTarget, "fail_unclaimable": ClaimTarget, "renew": Renewal,
    "release": Release, "append": Append, "begin_call": BeginCall, "record_call": RecordCall, "suspend": Suspension,
    "defer": Deferral, "finish": Finish, "finish_and_claim": Finish, "stop": Stop, "stop_runs": StopRun, "react": React, "report": Report,
    "start_and_claim": StartRun, "report_and_claim": Report,
    "take_commands": ToolItem,
    "record_callbacks": CallbackAttempt, "put_boxes": PutBox, "fork_boxes": ForkBox, "replace_boxes": ReplaceBoxes,
    "remember": Memory, "forget": ForgottenMemory, "beat": Beat, "deregister": Deregistration,
    "record_positions": Position,
}  # fmt: skip

# By kernel function: the one that also claims, and the key of its answers in the answer of that one.
WITH_CLAIM: Mapping[str, tuple[str, str]] = {
    "start_runs": ("start_and_claim", "started"), "report": ("report_and_claim", "reported"),
    "finish": ("finish_and_claim", "finished"),
}  # fmt: skip
