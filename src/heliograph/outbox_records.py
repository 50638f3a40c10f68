"""What workers send for the kernel: events of the outbox, and callbacks. Frozen structs that msgspec decodes."""

from __future__ import annotations

from typing import Any

import msgspec

from heliograph.ids import idempotency_key


class Event(msgspec.Struct, frozen=True):
    """A row of the outbox: a task event, which has ids but no contents, or a command to a tool.

    wires: the message systems that it has to reach, besides PostgreSQL. target: the turn's application.
    """

    outbox_id: int
    key: str
    subject: str
    body: dict[str, Any]
    wires: list[str] = []
    project: str = ""
    target: str | None = None

    @property
    def message_id(self) -> str:
        """The id by which subscribers deduplicate. Unlike `key`, it is unique among projects and applications.

        An event for a shared channel has no project; its key is a token that is unique by itself.
        """
        return self.key if not self.project else idempotency_key(self.project, self.target or "", self.key)


class Callback(msgspec.Struct, frozen=True):
    """A completion webhook to send for a turn or a run. `attempt` counts from 1.

    content: the deliverable of the turn, or the state of the run. undecodable: why the content is missing. trace: the part of the
    run's memory from which its trace follows.
    """

    callback_id: str
    url: str
    attempt: int
    run_id: str
    turn_id: str | None
    agent: str | None
    call_id: str | None
    outcome: str | None
    content: Any
    card_id: str | None
    duration_ms: int
    correlation_id: str | None = None
    undecodable: str | None = None
    trace: dict[str, Any] = {}
