"""Sign webhooks, and verify them at the receiver, in the format of the Standard Webhooks specification. Pure.

There are three headers. `webhook-id` is the same for every attempt of one message. `webhook-timestamp` is the time of this
attempt, in seconds since 1970. `webhook-signature` has one `v1,<base64>` for each active secret: an HMAC-SHA256 of
`id.timestamp.body`. While a secret is rotated, the sender signs with the old and the new one, and receivers accept either.
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
_ID_CHARACTERS_MAX = 1000  # the percent-encoded id of a signal is the longest
_SIGNATURES_MAX = 20


def sign_webhook(webhook_id: str, at: datetime, body: bytes, secrets: Sequence[str]) -> dict[str, str]:
    """Return the three headers of one attempt. Raises InvalidInput (`invalid_secret`) for a missing or malformed secret."""
    timestamp = str(int(at.timestamp()))
    signatures = [f"v1,{_signature(key, webhook_id, timestamp, body)}" for key in _keys(secrets)]
    return {ID_HEADER: webhook_id, TIMESTAMP_HEADER: timestamp, SIGNATURE_HEADER: " ".join(signatures)}


def verify_webhook(headers: Mapping[str, str], body: bytes, secrets: Sequence[str], now: datetime) -> str:
    """Verify a webhook's signature with one of these secrets and its age of at most five minutes, and return its id.

    headers: names in upper or lower case. body: the bytes as received, before JSON parsing. The same id arrives again if your
    response was lost: remember each id for a day, and ignore repetitions.
    Raises Rejected (`bad_signature`), and InvalidInput (`invalid_secret`) for a missing or malformed secret.
    """
    keys = _keys(secrets)
    given = {name.lower(): value for name, value in headers.items()}
    try:
        webhook_id, timestamp, signatures = (given[name] for name in (ID_HEADER, TIMESTAMP_HEADER, SIGNATURE_HEADER))
    except KeyError as missing:
        raise Rejected(
            f"the request has no header {missing.args[0]}; do not trust its body", code="bad_signature"
        ) from None
    if (
        not 0 < len(webhook_id) <= _ID_CHARACTERS_MAX
        or not timestamp.isascii()
        or not timestamp.isdigit()
        or len(timestamp) > 12
    ):
        raise Rejected(
            f"the header {ID_HEADER} or {TIMESTAMP_HEADER} is malformed; do not trust the body", code="bad_signature"
        )
    if abs(now.timestamp() - int(timestamp)) > TOLERANCE_SECONDS:
        raise Rejected(
            f"the request was signed more than {TOLERANCE_SECONDS} s before or after now; if it is genuine, check your clock",
            code="bad_signature",
        )
    candidates = [each[3:].encode() for each in signatures.split(" ")[:_SIGNATURES_MAX] if each.startswith("v1,")]
    expected = [_signature(key, webhook_id, timestamp, body).encode() for key in keys]
    # compare all pairs, so that the duration does not reveal which secret matched
    if not any([hmac.compare_digest(candidate, right) for candidate in candidates for right in expected]):  # noqa: C419
        raise Rejected(
            "no signature of the request was made with these secrets; do not trust its body", code="bad_signature"
        )
    return webhook_id


def check_secrets(secrets: Sequence[str]) -> tuple[str, ...]:
    """Return secrets unchanged. Raises InvalidInput (`invalid_secret`) if none is given, or one is malformed."""
    _keys(secrets)
    return tuple(secrets)


def _signature(key: bytes, webhook_id: str, timestamp: str, body: bytes) -> str:
    signed = b".".join((webhook_id.encode(), timestamp.encode(), body))
    return base64.b64encode(hmac.digest(key, signed, "sha256")).decode()


def _keys(secrets: Sequence[str]) -> list[bytes]:
    if isinstance(secrets, str) or not secrets:
        raise InvalidInput("a webhook is signed and checked with a list of at least one secret", code="invalid_secret")
    return [_key(secret) for secret in secrets]


def _key(secret: str) -> bytes:
    """The bytes of one secret. No message contains the secret."""
    try:
        if not secret.startswith(_PREFIX):
            raise ValueError
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except (AttributeError, ValueError, binascii.Error):
        key = b""
    if len(key) not in _SECRET_BYTES:
        raise InvalidInput(f"a webhook secret must be {_PREFIX} and the base64 of {_SECRET_BYTES[0]} to {_SECRET_BYTES[-1]} random bytes",
                           code="invalid_secret")  # fmt: skip
    return key
