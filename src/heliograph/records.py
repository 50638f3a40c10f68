"""Rows of the ledger as Python sees them. Frozen; decoded by msgspec from what the kernel answers."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

RunStatus = Literal["running", "terminating", "ended"]
Outcome = Literal["success", "failed", "canceled", "timeout", "partial"]


class RunView(msgspec.Struct, frozen=True):
    """What a reaction is computed from. `version` guards its commit (K24)."""

    run_id: str
    status: RunStatus
    version: int
    state: dict[str, Any]  # any JSON object: msgspec builds decoders from this, and cannot from a recursive alias
    memory: dict[str, Any]
    open_turns: int
    owed: int
    activations: int


class Cause(msgspec.Struct, frozen=True):
    """The signal that woke a turn."""

    id: str
    name: str
    payload: Any
    agent: str | None = None


class InboxRow(msgspec.Struct, frozen=True):
    message_type: str
    correlation_id: str


class Claimed(msgspec.Struct, frozen=True):
    """One head taken by `claim`, with all that hydration needs. `epoch` is the fencing token."""

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


class Written(msgspec.Struct, frozen=True):
    """The answer to append, renew and finish for one turn; `run` comes with a conflict."""

    turn_id: str
    outcome: Literal["ok", "stale", "conflict", "duplicate"]
    targets: list[str] = []
    first_seq: int | None = None
    run: RunView | None = None


class OwedSignal(msgspec.Struct, frozen=True):
    seq: int
    name: str
    payload: Any
    agent: str | None = None
    turn_id: str | None = None


class OwedRun(msgspec.Struct, frozen=True):
    """A run that owes a reaction, and to what."""

    target: str
    run: RunView
    signals: list[OwedSignal]


class Event(msgspec.Struct, frozen=True):
    """A task event in the outbox: pointers only (L0-86)."""

    outbox_id: int
    key: str
    subject: str
    body: dict[str, Any]
