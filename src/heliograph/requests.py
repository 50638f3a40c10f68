"""The requests of the kernel's functions: the required and the optional keys of each item.

The kernel rejects an item with any other key (decision 0035). `REQUESTS` names the item of each function; a test compares
its keys with those that the SQL function accepts and with those that its header documents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict

from heliograph.types import Json, JsonObject


class Owner(TypedDict):
    """The turn that a worker owns, and the epoch in which it does."""

    agent_id: str
    turn_id: str
    epoch: int


class SignalItem(TypedDict):
    """A draft of a signal."""

    name: str
    payload: NotRequired[Json]
    agent: NotRequired[str | None]
    parent: NotRequired[str | int | None]
    at: NotRequired[str | None]
    trust: NotRequired[str]
    is_pending: NotRequired[bool]


class CardItem(TypedDict):
    """A card. If it has no id, put_boxes gives it one."""

    card_id: NotRequired[str]
    kind: str
    content: Json


class CauseItem(TypedDict):
    """A signal that the log of the run contained before the request."""

    seq: int


class ActivationItem(TypedDict):
    """A turn that a reaction activates. cause, activation: indexes of its signals; or cause is a CauseItem."""

    agent: str
    turn_id: str
    cause: int | CauseItem
    activation: int
    priority: NotRequired[int]
    pool: NotRequired[str | None]
    max_attempts: int
    ttl_seconds: float
    context_box_id: NotRequired[str | None]
    result_fields: NotRequired[Sequence[JsonObject] | None]
    message_type: NotRequired[str]
    actor: NotRequired[str | None]
    budget: NotRequired[Mapping[str, int] | None]
    callback_url: NotRequired[str | None]
    depth: NotRequired[int]


class StopsItem(TypedDict):
    """The turns that a reaction stops: all, or human_waits."""

    turns: str
    reason: str


class ReactionItem(TypedDict):
    """The changes of a run by a reaction; state, memory, status, outcome and stops are present only where they change."""

    version: int
    activations: list[ActivationItem]
    state: NotRequired[Json]
    memory: NotRequired[JsonObject]
    status: NotRequired[str]
    outcome: NotRequired[str]
    stops: NotRequired[StopsItem]
    keeps_taint: NotRequired[bool]


class StartRun(TypedDict):
    run_id: str
    target: str
    request_hash: str
    agents: list[str]
    wakes_on_results: NotRequired[bool]
    callback_url: NotRequired[str | None]
    signals: list[SignalItem]
    reaction: ReactionItem


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


class Failure(TypedDict):
    code: str
    message: str


class Release(Owner):
    failure: NotRequired[Failure]


class Append(Owner):
    phase: NotRequired[str | None]
    signals_emitted: NotRequired[int]
    cards: NotRequired[list[CardItem]]
    signals: NotRequired[list[SignalItem]]


class CircuitBreakerItem(TypedDict):
    """The breaker of a call, with the settings by which its state changes. type: tool_call, delegation or model_call."""

    type: str
    target: str
    failure_threshold: int
    success_threshold: int
    timeout_seconds: float
    half_open_max_calls: int


class RateItem(TypedDict):
    """A bucket from which a call takes `amount` tokens: at most `count` in `seconds`, of all workers together.

    kind, name: the bucket. Kinds: tool, agent, model, model_tokens, route.
    """

    kind: str
    name: str
    count: int
    seconds: int
    amount: int


class BeginCall(Owner):
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


class OpenAs(TypedDict):
    """A call that is opened by the request that records it."""

    step_id: str
    tool: str
    taint: NotRequired[list[str] | None]


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


class Command(TypedDict):
    """The command for the tool of a call."""

    subject: NotRequired[str | None]
    body: NotRequired[JsonObject | None]
    pool: NotRequired[str | None]
    priority: NotRequired[int | None]


class ToolItem(TypedDict):
    """A tool, and the pool of its commands."""

    tool: str
    pool: NotRequired[str | None]


class ChildItem(TypedDict):
    """The turn that a call of kind child delegates. cause, activation: indexes of signals; or cause is a CauseItem."""

    agent: str
    instance: NotRequired[str | None]
    turn_id: str
    activation: NotRequired[int]
    cause: NotRequired[int | CauseItem | None]
    priority: NotRequired[int]
    pool: NotRequired[str | None]
    max_attempts: int
    ttl_seconds: float
    context_box_id: NotRequired[str | None]
    result_fields: NotRequired[Sequence[JsonObject] | None]
    budget: NotRequired[Mapping[str, int] | None]
    callback_url: NotRequired[str | None]


class CallItem(TypedDict):
    """A call that a suspended turn waits for."""

    call_id: str
    step_id: NotRequired[str]
    tool: str
    kind: str
    effect: NotRequired[str]
    timeout_seconds: NotRequired[float | None]
    token: NotRequired[str | None]
    after_execution: NotRequired[str]
    may_override: NotRequired[bool]
    fails_fast: NotRequired[bool]
    taint: NotRequired[list[str] | None]
    is_trusted: NotRequired[bool]
    command: NotRequired[Command | None]
    child: NotRequired[ChildItem | None]
    circuit_breaker: NotRequired[CircuitBreakerItem | None]
    rates: NotRequired[list[RateItem] | None]


class Suspension(Owner):
    phase: NotRequired[str | None]
    signals_emitted: NotRequired[int]
    cards: NotRequired[list[CardItem]]
    signals: NotRequired[list[SignalItem]]
    join: NotRequired[str]
    seen: NotRequired[int]
    terminates: NotRequired[bool]
    calls: NotRequired[list[CallItem]]


class Deferral(Owner):
    reason: NotRequired[str]
    delay_seconds: float
    deferrals_max: NotRequired[int | None]
    trust: NotRequired[str]
    terminates: NotRequired[bool]


class Finish(Owner):
    outcome: str
    content: Json
    signals: list[SignalItem]
    reaction: ReactionItem


class Stop(TypedDict):
    turn_id: str
    mode: str
    grace_seconds: NotRequired[float | None]
    reason: NotRequired[str | None]
    actor: NotRequired[str | None]


class StopRun(TypedDict):
    run_id: str
    mode: str
    grace_seconds: NotRequired[float | None]
    reason: NotRequired[str | None]
    actor: NotRequired[str | None]


class React(TypedDict):
    run_id: str
    signals: list[SignalItem]
    reaction: ReactionItem


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


# The item of each function that takes a list of objects.
REQUESTS: Mapping[str, Any] = {
    "start_runs": StartRun, "enqueue": Message, "claim": ClaimTarget, "fail_unclaimable": ClaimTarget, "renew": Renewal,
    "release": Release, "append": Append, "begin_call": BeginCall, "record_call": RecordCall, "suspend": Suspension,
    "defer": Deferral, "finish": Finish, "stop": Stop, "stop_runs": StopRun, "react": React, "report": Report,
    "take_commands": ToolItem,
    "record_callbacks": CallbackAttempt, "put_boxes": PutBox, "fork_boxes": ForkBox, "replace_boxes": ReplaceBoxes,
    "remember": Memory, "forget": ForgottenMemory, "beat": Beat, "deregister": Deregistration,
}  # fmt: skip
