"""Signals: drafts before they are recorded, rows of the log, and JSON for exchange."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput

if TYPE_CHECKING:
    from heliograph.types import Json, JsonObject
else:
    Json = Any  # msgspec builds decoders from these annotations; it cannot build one from a recursive alias

_ID_LENGTH_MAX = 200
_ID_CHARACTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")


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


def from_wire(wire: JsonObject) -> Signal:
    """Read a signal from the format of `to_wire`, which has no `turn_id`.

    It does not check the payload: `json_parser.parse_json` has checked it.
    Raises InvalidInput: required_field, wrong_type, unknown_field, invalid_id, invalid_timestamp.
    """
    _reject_unknown(wire, {"id", "name", "payload", "timestamp", "source", "run_id", "seq"}, "")
    if "payload" not in wire:
        raise InvalidInput(
            "a signal has no 'payload'; add it, null if there is none", code="required_field", path="/payload"
        )
    return Signal(
        id=_read_id(wire),
        name=_read_text(wire, "name"),
        payload=wire["payload"],
        timestamp=_read_timestamp(wire),
        source=_read_source(wire.get("source")),
        run_id=_read_text(wire, "run_id"),
        seq=_read_seq(wire),
    )


def _format_timestamp(at: datetime) -> str:
    return at.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def _read_text(wire: JsonObject, key: str) -> str:
    if key not in wire:
        raise InvalidInput(f"a signal has no '{key}'; add it as a string", code="required_field", path=f"/{key}")
    value = wire[key]
    if not isinstance(value, str):
        raise InvalidInput(f"'{key}' must be a string, not {safe_repr(value)}", code="wrong_type", path=f"/{key}")
    return value


def _read_id(wire: JsonObject) -> str:
    identifier = _read_text(wire, "id")
    body = identifier.removeprefix("sig_")
    if body == identifier or not body or len(identifier) > _ID_LENGTH_MAX or not _ID_CHARACTERS.issuperset(body):
        raise InvalidInput(
            f"'{safe_repr(identifier)}' is not the id of a signal: sig_, followed by letters, digits, '_' or '-', "
            f"at most {_ID_LENGTH_MAX} characters",
            code="invalid_id",
            path="/id",
        )
    return identifier


def _read_seq(wire: JsonObject) -> int:
    seq = wire.get("seq")
    if type(seq) is not int or seq < 1:  # excludes bool, which is an int
        raise InvalidInput(f"'seq' must be an integer from 1, not {safe_repr(seq)}", code="wrong_type", path="/seq")
    return seq


def _read_timestamp(wire: JsonObject) -> datetime:
    text = _read_text(wire, "timestamp")
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise InvalidInput(
            f"'{safe_repr(text)}' is not an ISO 8601 time with a zone, such as 2026-01-31T09:30:00.000000Z",
            code="invalid_timestamp",
            path="/timestamp",
        )
    return at.astimezone(UTC)


def _read_source(value: Json) -> Source | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise InvalidInput(f"'source' must be an object, not {safe_repr(value)}", code="wrong_type", path="/source")
    _reject_unknown(value, {"agent", "parent"}, "/source")
    return Source(agent=_read_part(value, "agent"), parent=_read_part(value, "parent"))


def _read_part(source: JsonObject, key: str) -> str | None:
    value = source.get(key)
    if value is not None and not isinstance(value, str):
        raise InvalidInput(
            f"'source.{key}' must be a string, not {safe_repr(value)}", code="wrong_type", path=f"/source/{key}"
        )
    return value


def _reject_unknown(wire: JsonObject, known: set[str], path: str) -> None:
    for key in wire:
        if key not in known:
            raise InvalidInput(
                f"'{safe_repr(key)}' is not a field of a signal; the fields are {', '.join(sorted(known))}",
                code="unknown_field",
                path=f"{path}/{safe_repr(key)}",
            )
