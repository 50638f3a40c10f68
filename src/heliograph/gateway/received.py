"""Read a request of another gateway: verify its signature, parse its envelope, and derive the key that makes it idempotent. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from heliograph.client.arguments import check_text
from heliograph.control.envelope import Envelope, read_envelope
from heliograph.control.payloads import DelegationPayload, ToolCallPayload
from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput, Rejected
from heliograph.policy.webhook_signature import ID_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER, verify_webhook
from heliograph.signals.json_parser import parse_json
from heliograph.turn.calls import WIRE_NAME_BYTES_MAX

_SIGNED = (ID_HEADER, TIMESTAMP_HEADER, SIGNATURE_HEADER)


def read_request(
    headers: Iterable[tuple[bytes, bytes]], body: bytes, secrets: Sequence[str], now: datetime
) -> Envelope:
    """Return the envelope of a request. The signature is verified before the body is parsed.

    Raises Rejected (`bad_signature`), and the errors of `parse_json` and `read_envelope`.
    """
    given: dict[str, str] = {}
    for raw_name, value in headers:
        name = raw_name.decode("latin-1").lower()
        if name in given and name in _SIGNED:
            raise Rejected(f"the request has the header {name} twice; send it once", code="bad_signature")
        given[name] = value.decode("latin-1")
    verify_webhook(given, body, secrets, now)
    envelope = read_envelope(parse_json(body))
    _check_names(envelope)
    return envelope


def _check_names(envelope: Envelope) -> None:
    """Check the ids and names of an envelope, which stay in logs: short, and printable. Raises InvalidInput."""
    check_text(envelope.source, "the source", "/envelope/source")  # which becomes the actor of the turn
    payload = envelope.signal.payload
    given = {
        f"/envelope/{key}": getattr(envelope, key) for key in ("id", "source", "destination", "trace_id", "span_id")
    }
    for key in ("correlation_id", "parent_correlation_id"):
        given[f"/envelope/signal/payload/{key}"] = getattr(payload, key, None)
    for path, value in given.items():
        name = path.rsplit("/", 1)[1]
        if value is not None and len(value.encode("utf-8", "surrogatepass")) > WIRE_NAME_BYTES_MAX:
            raise InvalidInput(f"{name} must have at most {WIRE_NAME_BYTES_MAX} bytes", code="too_long", path=path)
        if value is not None and not value.isprintable():
            raise InvalidInput(f"{name} must be printable text, not {safe_repr(value, 40)}; remove line breaks and control characters",
                               code="invalid_id", path=path)  # fmt: skip


def correlation_id_of(envelope: Envelope) -> str:
    """Return the correlation id of a request; the id of its envelope for a request without one."""
    payload = envelope.signal.payload
    given = payload.correlation_id if isinstance(payload, DelegationPayload | ToolCallPayload) else None
    return given or envelope.id


def task_key(project: str, target: str, source: str, correlation_id: str) -> str:
    """Return the key of a task: the same for each request of a source with this correlation id to this target of a project."""
    return _digest([project, target, source, correlation_id])[:32]


def turn_of_task(key: str) -> str:
    """Return the id of the turn that executes the task with this key."""
    return f"turn_gateway_{key}"


def task_hash(envelope: Envelope) -> str:
    """Return a hash that is equal for repeated requests. Their envelopes and their timeouts may differ."""
    return _digest([envelope.signal.type, envelope.signal.payload.to_wire()])


def _digest(value: object) -> str:
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()
