"""The objects inside the requests of the kernel's functions: signals, cards, calls, and the changes of a reaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NotRequired, TypedDict

from heliograph.types import Json, JsonObject


class SignalItem(TypedDict):
    """A draft of a signal.

    parent: the id of a signal; or the index of an earlier draft of the same list; or the position of a signal of the same run, as a text.
    at: microseconds since 1970, or a text in ISO 8601. After the first draft: microseconds since the first one, if they are below 10^13;
    absent for the same time; null for the time of the commit.
    """

    name: str
    payload: NotRequired[Json]
    agent: NotRequired[str | None]
    parent: NotRequired[str | int | None]
    at: NotRequired[str | int | None]
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


class NewTurnItem(TypedDict):
    """A turn to queue."""

    agent: str
    turn_id: str
    priority: NotRequired[int]
    pool: NotRequired[str | None]
    max_attempts: int
    ttl_seconds: float
    context_box_id: NotRequired[str | None]
    result_fields: NotRequired[Sequence[JsonObject] | None]
    budget: NotRequired[Mapping[str, int] | None]
    callback_url: NotRequired[str | None]


class ActivationItem(NewTurnItem):
    """A turn that a reaction activates. cause, activation: indexes of its signals; or cause is a CauseItem."""

    cause: int | CauseItem
    activation: int
    message_type: NotRequired[str]
    actor: NotRequired[str | None]
    depth: NotRequired[int]


class StopsItem(TypedDict):
    """The turns that a reaction stops: all, or human_waits."""

    turns: str
    reason: str


class ReactionItem(TypedDict):
    """The changes of a run by a reaction; state, memory, status, outcome and stops are present only where they change."""

    activations: list[ActivationItem]
    state: NotRequired[Json]
    memory: NotRequired[JsonObject]
    status: NotRequired[str]
    outcome: NotRequired[str]
    stops: NotRequired[StopsItem]
    keeps_taint: NotRequired[bool]


class ForkedTurnItem(TypedDict):
    """The turn of a fork that starts the turn `origin` again."""

    turn_id: str
    origin: str


class ForkItem(TypedDict):
    """The run whose log a new run continues after position seq. activations: the number of turns that it activated up to there.

    repeats_failed: the last calls of these turns are made again if they failed.
    """

    run_id: str
    seq: int
    activations: NotRequired[int]
    turns: NotRequired[list[ForkedTurnItem]]
    repeats_failed: NotRequired[bool]


class RecordingItem(TypedDict):
    """What one commit of a recorded run keeps beside its signals. name, tags: of the recording, in its start alone.

    The start of a fork has no body.
    """

    body: NotRequired[str]
    name: NotRequired[str | None]
    tags: NotRequired[Sequence[str]]


class Failure(TypedDict):
    code: str
    message: str


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


class OpenAs(TypedDict):
    """A call that is opened by the request that records it."""

    step_id: str
    tool: str
    taint: NotRequired[list[str] | None]


class Command(TypedDict):
    """The command for the tool of a call."""

    subject: NotRequired[str | None]
    body: NotRequired[JsonObject | None]
    pool: NotRequired[str | None]
    priority: NotRequired[int | None]


class ChildItem(NewTurnItem):
    """The turn that a call of kind child delegates. cause, activation: indexes of signals; or cause is a CauseItem."""

    instance: NotRequired[str | None]
    activation: NotRequired[int]
    cause: NotRequired[int | CauseItem | None]


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
