"""Read a request of another gateway: verify its signature, parse its envelope, and derive the key that makes it idempotent. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from heliograph.client.arguments import check_text
from heliograph.control.envelope import Envelope, read_envelope
from heliograph.control.payloads import DelegationPayload, ToolCallPayload
from heliograph.errors import Rejected
from heliograph.policy.webhook_signature import ID_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER, verify_webhook
from heliograph.signals.json_parser import parse_json

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
    check_text(envelope.source, "the source", "/envelope/source")
    return envelope


def correlation_id_of(envelope: Envelope) -> str:
    """Return the correlation id of a request; the id of its envelope for a request without one."""
    payload = envelope.signal.payload
    given = payload.correlation_id if isinstance(payload, DelegationPayload | ToolCallPayload) else None
    return given or envelope.id


def task_key(project: str, target: str, correlation_id: str) -> str:
    """Return the key of a task: the same for each request with this correlation id to this target of a project."""
    return _digest([project, target, correlation_id])[:32]


def turn_of_task(key: str) -> str:
    """Return the id of the turn that executes the task with this key."""
    return f"turn_gateway_{key}"


def task_hash(envelope: Envelope) -> str:
    """Return a hash that is equal for repeated requests. Their envelopes and their timeouts may differ."""
    return _digest([envelope.signal.type, envelope.signal.payload.to_wire()])


def _digest(value: object) -> str:
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()
