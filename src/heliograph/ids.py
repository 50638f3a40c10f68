"""Create and parse ids: a short word for the kind, then 21 characters that sort by time.

The characters encode 45 bits of milliseconds and 60 random bits in Crockford's base 32 (decision 0152). Both are arguments, so that a test
reproduces the ids of a seed. Ids of earlier versions have 26 characters, and sort before these.
"""

from __future__ import annotations

import hashlib
from datetime import datetime

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def make_id(kind: str, at: datetime, entropy: bytes) -> str:
    """Return `kind_` and 21 characters. at: with a time zone, before the year 3084. entropy: eight bytes, of which 60 bits count.

    With ten bytes all 80 bits count, and the id has 25 characters: for parts of secrets.
    """
    bits = len(entropy) * 8
    unused = bits % 5
    number = (int(at.timestamp() * 1000) << (bits - unused)) | (int.from_bytes(entropy, "big") >> unused)
    return f"{kind}_" + "".join(_ALPHABET[(number >> shift) & 31] for shift in range(bits - unused + 40, -1, -5))


KEY_MAX = 255  # payment providers and queues commonly accept idempotency keys of this length


def idempotency_key(project: str, application: str, *parts: str) -> str:
    """Return the key by which receivers deduplicate one turn or call: `project/application/turn/...`.

    Slashes within a part are escaped, so two keys are equal only if all their parts are equal. A key of more than `KEY_MAX` characters
    is truncated, and ends with the SHA-256 of the whole.
    """
    key = "/".join(part.replace("%", "%25").replace("/", "%2F") for part in (project, application, *parts))
    if len(key) <= KEY_MAX:
        return key
    digest = hashlib.sha256(key.encode()).hexdigest()
    return f"{key[: KEY_MAX - len(digest) - 1]}/{digest}"


_DIGITS_MAX = 18  # of a position, which is a bigint


def signal_id(run_id: str, seq: int) -> str:
    """Return the id of the signal at position `seq` of a run's log.

    It depends only on the arguments, so a replay of a run gives its signals the same ids. The SQL function `_signal_id` does the same.
    """
    return f"sig_{run_id}_{seq}"


def split_signal_id(identifier: str) -> tuple[str, int] | None:
    """Return the run id and the position of a signal's id; None for any other text."""
    head, _, tail = identifier.rpartition("_")
    if not head.startswith("sig_") or not tail.isascii() or not tail.isdigit() or len(tail) > _DIGITS_MAX:
        return None
    return head.removeprefix("sig_"), int(tail)


def trace_id_of(run_id: str) -> str:
    """Return the trace id of a run that began in this database, in hexadecimal. Every process computes the same one."""
    return _digest(run_id, 16).hex()


def trace_number_of(run_id: str) -> int:
    """Return `trace_id_of` as a number."""
    return int.from_bytes(_digest(run_id, 16))


def span_id_of(name: str) -> str:
    """Return a span id, in hexadecimal: of a run by its id, of a turn by its id, of a call by `turn:call`."""
    return _digest(name, 8).hex()


def span_number_of(name: str) -> int:
    """Return `span_id_of` as a number."""
    return int.from_bytes(_digest(name, 8))


def _digest(text: str, size: int) -> bytes:
    """The ids of W3C Trace Context: 16 bytes for a trace, 8 for a span."""
    return hashlib.blake2b(text.encode(), digest_size=size).digest()
