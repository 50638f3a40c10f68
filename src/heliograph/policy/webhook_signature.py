"""Signatures of what is sent over HTTP, in the form of Standard Webhooks: made by us, checked by whoever receives. Pure.

Three headers: `webhook-id`, the same for every try of one message; `webhook-timestamp`, seconds since 1970, of this try;
`webhook-signature`, one `v1,<base64>` for each active secret, an HMAC-SHA256 of `id.timestamp.body`. While secrets are
exchanged both sides have two: what is signed with both is accepted by whoever has either.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Mapping, Sequence
from datetime import datetime

from heliograph.errors import InvalidInput, Rejected

TOLERANCE_SECONDS = 300
ID_HEADER, TIMESTAMP_HEADER, SIGNATURE_HEADER = "webhook-id", "webhook-timestamp", "webhook-signature"
_PREFIX = "whsec_"
_SECRET_BYTES = range(24, 65)
_ID_CHARACTERS_MAX = 200
_SIGNATURES_MAX = 20


def sign_webhook(webhook_id: str, at: datetime, body: bytes, secrets: Sequence[str]) -> dict[str, str]:
    """The three headers of one try. Raises InvalidInput where there is no secret, or one that is none."""
    timestamp = str(int(at.timestamp()))
    signatures = [f"v1,{_signature(key, webhook_id, timestamp, body)}" for key in _keys(secrets)]
    return {ID_HEADER: webhook_id, TIMESTAMP_HEADER: timestamp, SIGNATURE_HEADER: " ".join(signatures)}


def verify_webhook(headers: Mapping[str, str], body: bytes, secrets: Sequence[str], now: datetime) -> str:
    """The id of a message that is signed with one of these secrets, and not older or newer than five minutes.

    headers: in any spelling of their names. body: the bytes as they came, before anybody read them as JSON. The same id
    comes again when an answer was lost: remember it for a day, and do nothing the second time. Raises Rejected
    (`bad_signature`); InvalidInput where there is no secret to check with.
    """
    keys = _keys(secrets)
    given = {name.lower(): value for name, value in headers.items()}
    try:
        webhook_id, timestamp, signatures = (given[name] for name in (ID_HEADER, TIMESTAMP_HEADER, SIGNATURE_HEADER))
    except KeyError as missing:
        raise Rejected(f"the request has no header {missing.args[0]}", code="bad_signature") from None
    if (
        not 0 < len(webhook_id) <= _ID_CHARACTERS_MAX
        or not timestamp.isascii()
        or not timestamp.isdigit()
        or len(timestamp) > 12
    ):
        raise Rejected("the id or the timestamp of the request is none", code="bad_signature")
    if abs(now.timestamp() - int(timestamp)) > TOLERANCE_SECONDS:
        raise Rejected(
            f"the request was signed more than {TOLERANCE_SECONDS} s before or after now", code="bad_signature"
        )
    candidates = [each[3:].encode() for each in signatures.split(" ")[:_SIGNATURES_MAX] if each.startswith("v1,")]
    expected = [_signature(key, webhook_id, timestamp, body).encode() for key in keys]
    # all pairs, always: how long it takes tells nobody which secret or how much of it was right
    if not any([hmac.compare_digest(candidate, right) for candidate in candidates for right in expected]):  # noqa: C419
        raise Rejected("no signature of the request fits any of the secrets", code="bad_signature")
    return webhook_id


def _signature(key: bytes, webhook_id: str, timestamp: str, body: bytes) -> str:
    signed = b".".join((webhook_id.encode(), timestamp.encode(), body))
    return base64.b64encode(hmac.digest(key, signed, "sha256")).decode()


def _keys(secrets: Sequence[str]) -> list[bytes]:
    if isinstance(secrets, str) or not secrets:
        raise InvalidInput("a webhook is signed and checked with a list of at least one secret", code="invalid_secret")
    return [_key(secret) for secret in secrets]


def _key(secret: str) -> bytes:
    """The bytes of one secret; no message says what it was."""
    try:
        if not secret.startswith(_PREFIX):
            raise ValueError
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except (AttributeError, ValueError, binascii.Error):
        key = b""
    if len(key) not in _SECRET_BYTES:
        raise InvalidInput(f"a webhook secret is {_PREFIX} and the base64 of {_SECRET_BYTES[0]} to {_SECRET_BYTES[-1]} random bytes",
                           code="invalid_secret")  # fmt: skip
    return key
