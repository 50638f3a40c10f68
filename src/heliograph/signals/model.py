"""Signals: drafts before they are recorded, rows of the log, and JSON for exchange."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from heliograph.types import Json, JsonObject
else:
    Json = Any  # msgspec builds decoders from these annotations; it cannot build one from a recursive alias


class Source(Struct, frozen=True):
    """The origin of a signal.

    agent: the name of the agent that emitted it; None for the runtime.
    parent: the id of the signal that caused it; None for the root of a run.
    """

    agent: str | None = None
    parent: str | None = None


class Signal(Struct, frozen=True):
    """A recorded signal: one row of the log of a run.

    timestamp: aware, UTC, for information; `seq` defines the order.
    seq: the position in the log of its run, from 1, without gaps.
    turn_id: the turn that emitted it; None if no turn did.
    """

    id: str
    name: str
    payload: Json
    timestamp: datetime
    source: Source | None
    run_id: str
    seq: int
    turn_id: str | None = None

    @property
    def agent(self) -> str | None:
        return self.source.agent if self.source else None

    @property
    def parent(self) -> str | None:
        return self.source.parent if self.source else None


class Draft(Struct, frozen=True):
    """A signal that is not recorded yet; recording gives it an id and a position.

    parent: the id of a recorded signal, or the index of an earlier draft of the same batch.
    at: aware; None means the time of recording. is_untrusted: it derives from untrusted content.
    """

    name: str
    payload: Json = None
    agent: str | None = None
    parent: str | int | None = None
    at: datetime | None = None
    is_untrusted: bool = False


def to_wire(signal: Signal) -> JsonObject:
    """Convert a signal to JSON in the format of the Agent Signals specification, with `run_id` and `seq` added.

    Missing parts of the source are omitted, and so is an empty source.
    """
    wire: JsonObject = {
        "id": signal.id,
        "name": signal.name,
        "payload": signal.payload,
        "timestamp": _format_timestamp(signal.timestamp),
    }
    source: JsonObject = {}
    if signal.agent is not None:
        source["agent"] = signal.agent
    if signal.parent is not None:
        source["parent"] = signal.parent
    if source:
        wire["source"] = source
    return wire | {"run_id": signal.run_id, "seq": signal.seq}


def _format_timestamp(at: datetime) -> str:
    return at.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
