"""Signals: drafts before they are recorded, rows of the log, and JSON for exchange."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic

from msgspec import Struct

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from heliograph.types import Json, JsonObject

    P = TypeVar("P", default=Json)  # a signal without a parameter has JSON
else:
    from typing import TypeVar

    P = TypeVar("P")
    Json = Any  # msgspec builds decoders from these annotations; it cannot build one from a recursive alias


class Source(Struct, frozen=True):
    """The origin of a signal.

    agent: the name of the agent that emitted it; None for the runtime.
    parent: the id of the signal that caused it; None for the root of a run.
    """

    agent: str | None = None
    parent: str | None = None


class Signal(Struct, Generic[P], frozen=True):
    """A recorded signal: one row of the log of a run. Subscribers to a definition receive its payload as the model.

    timestamp: aware, UTC, for information; `seq` defines the order.
    seq: the position in the log of its run, from 1, without gaps.
    turn_id: the turn that emitted it; None if no turn did.
    """

    id: str
    name: str
    payload: P
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


class LogEntry(Struct, frozen=True):
    """A recorded signal with the facts that a fork of its run needs.

    run_id: the run that recorded it. commit_seq: the position of the first signal of its commit. is_deferred: it was recorded before
    its reaction.
    """

    id: str
    run_id: str
    seq: int
    commit_seq: int
    name: str
    payload: Json
    agent: str | None
    parent: str | None
    is_untrusted: bool = False
    is_deferred: bool = False


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


def from_wire(wire: Mapping[str, Any]) -> Signal:
    """Convert a signal of the kernel's JSON. A payload that was left out because of its size becomes a text with that size."""
    payload = wire["payload"] if "payload" in wire else f"({wire['payload_bytes']} bytes)"
    source = wire.get("source")
    return Signal(wire["id"], wire["name"], payload, datetime.fromisoformat(wire["timestamp"]),
                  None if source is None else Source(source.get("agent"), source.get("parent")), wire["run_id"], wire["seq"],
                  wire["turn_id"])  # fmt: skip


def _format_timestamp(at: datetime) -> str:
    return at.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
