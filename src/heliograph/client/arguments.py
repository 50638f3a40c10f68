"""Check the arguments of the client's methods. Each error states the accepted values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from heliograph.codes import TOOL_ERROR
from heliograph.definitions.ranges import GRACE_SECONDS_MAX
from heliograph.definitions.signal_definition import SignalDefinition
from heliograph.error_text import repr_of, safe_repr
from heliograph.errors import InvalidInput, NotFound
from heliograph.ids import split_signal_id
from heliograph.signals.names import check_emit_name
from heliograph.signals.payload import check_json, check_payload
from heliograph.signals.values import to_json
from heliograph.turn.interruptions import check_seconds
from heliograph.types import Json

ID_LENGTH_MAX = 200
_ID_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
LIMIT_MAX = 1000
_REASON_MAX = 250  # characters of at most four bytes


def check_stop(*, now: bool, grace_seconds: float, reason: str, actor: str | None) -> dict[str, Any]:
    """Return a stop as the kernel takes it: {mode, grace_seconds, reason, actor}. Raises InvalidInput."""
    if not isinstance(reason, str) or not reason.strip() or len(reason) > _REASON_MAX:
        raise InvalidInput(f"the reason of a stop must be a text of at most {_REASON_MAX} characters, not {safe_repr(reason)}",
                           code="invalid_reason", path="/reason")  # fmt: skip
    check_json(reason, "/reason")
    if not 0 <= check_seconds("the grace", grace_seconds, least=0.0) <= GRACE_SECONDS_MAX:
        raise InvalidInput(f"the grace must be a number of seconds from 0 to {GRACE_SECONDS_MAX}, not {grace_seconds:g}", code="out_of_range",
                           path="/grace_seconds")  # fmt: skip
    return {"mode": "force" if now else "graceful", "grace_seconds": grace_seconds, "reason": reason,
            "actor": check_text(actor, "an actor", "/actor")}  # fmt: skip


def check_limit(limit: int) -> None:
    """Check the number of rows that a caller requests. Raises InvalidInput (`out_of_range`)."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= LIMIT_MAX:
        raise InvalidInput(
            f"limit must be from 1 to {LIMIT_MAX}, not {safe_repr(limit)}", code="out_of_range", path="/limit"
        )


def check_text(value: str | None, what: str, path: str) -> str | None:
    """Return a short text unchanged. Raises InvalidInput (`too_long`, `wrong_type`, or a code of `check_json`)."""
    if value is not None and not isinstance(value, str):
        raise InvalidInput(f"{what} must be a text, not {safe_repr(value)}", code="wrong_type", path=path)
    if value is not None and len(value.encode("utf-8", "surrogatepass")) > ID_LENGTH_MAX:
        raise InvalidInput(f"{what} must have at most {ID_LENGTH_MAX} bytes", code="too_long", path=path)
    check_json(value, path)
    return value


def check_error(error: str | Mapping[str, Any]) -> Json:
    """Return an error as an object with at least a message. Raises InvalidInput."""
    shaped = {"code": TOOL_ERROR, "message": error} if isinstance(error, str) else dict(error)
    if not isinstance(shaped.get("message"), str) or not shaped["message"]:
        raise InvalidInput("an error must be a text, or an object with a message", code="invalid_result", path="/error")
    return check_payload(to_json(shaped, "/error"), "/error")


def check_id(value: Any, what: str, path: str) -> str:
    """Return an id unchanged. what: its name for the message. Raises InvalidInput (`too_long`, `invalid_id`)."""
    if isinstance(value, str) and len(value) > ID_LENGTH_MAX:
        raise InvalidInput(f"{what} must have at most {ID_LENGTH_MAX} characters, not {len(value)}: {safe_repr(value, 40)}",
                           code="too_long", path=path)  # fmt: skip
    if not isinstance(value, str) or not value or not _ID_CHARACTERS.issuperset(value):
        raise InvalidInput(f"{what} must consist of ASCII letters, digits, '_' and '-', not {safe_repr(repr_of(value))}",
                           code="invalid_id", path=path)  # fmt: skip
    return value


def check_signal_id(value: Any) -> str:
    """Return the id of a signal unchanged; it may name any run. Raises InvalidInput (`invalid_id`), NotFound (`unknown_signal`)."""
    if not isinstance(value, str):
        raise InvalidInput(f"a signal id must be a text like sig_<run>_<position>, not {safe_repr(repr_of(value))}", code="invalid_id",
                           path="/signal_id")  # fmt: skip
    if split_signal_id(value) is None or not _is_storable(value):
        raise NotFound(f"no signal {safe_repr(value)}: the id of a signal is sig_<run>_<position>; helio signal tail shows the ids of "
                       "signals", code="unknown_signal")  # fmt: skip
    return value


def check_subject(value: Any) -> str:
    """Return the id of a signal or of a run unchanged. Raises InvalidInput (`invalid_id`, `too_long`), NotFound (`unknown_signal`)."""
    return (
        check_signal_id(value)
        if isinstance(value, str) and value.startswith("sig_")
        else check_id(value, "a run id", "/subject")
    )


def _is_storable(text: str) -> bool:
    """Whether PostgreSQL has texts with these characters."""
    try:
        check_json(text, "")
    except InvalidInput:
        return False
    return True


def check_message(name: str | SignalDefinition[Any], payload: Any) -> tuple[str, Json]:
    """Return the name and the payload of a message. Raises InvalidInput, also for a payload that does not match its definition."""
    if isinstance(name, SignalDefinition):
        return name.name, name.dump(payload)
    content = to_json({} if payload is None else payload, "/payload")
    return check_emit_name(name), check_payload(content, "/payload")
