"""How long to wait before trying again. Pure: the jitter is a number that is given (RET-02 to RET-06, G-06)."""

from __future__ import annotations

from hashlib import blake2b

FIRST_DELAY_SECONDS = 1.0
DELAY_SECONDS_MAX = 30.0


def backoff_seconds(
    attempt: int, jitter: float, *, first: float = FIRST_DELAY_SECONDS, at_most: float = DELAY_SECONDS_MAX
) -> float:
    """The delay before retry number `attempt`, counted from 1: exponential, with full jitter, capped after it.

    jitter: from 0 to 1, the part of the delay that is waited.
    """
    return min(first * 2.0 ** (attempt - 1) * jitter, at_most)


def jitter_of(key: str, attempt: int) -> float:
    """A number from 0 up to 1 that is the same for one key and attempt and differs between keys: the turns that failed
    together do not try again together, and a replay waits as long as the original did."""
    digest = blake2b(f"{key}/{attempt}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64
