"""Delays between retries: exponential backoff with jitter. Pure."""

from __future__ import annotations

from hashlib import blake2b

FIRST_DELAY_SECONDS = 1.0
DELAY_SECONDS_MAX = 30.0


def backoff_seconds(
    attempt: int, jitter: float, *, first: float = FIRST_DELAY_SECONDS, at_most: float = DELAY_SECONDS_MAX
) -> float:
    """Return the seconds before retry number `attempt`, counted from 1: exponential, times `jitter` (0 to 1), then capped."""
    return min(first * 2.0 ** (attempt - 1) * jitter, at_most)


def jitter_of(key: str, attempt: int) -> float:
    """Return a number from 0 to 1 that depends only on the key and the attempt.

    So turns that failed together retry at different times, and a replay waits as long as the original run.
    """
    digest = blake2b(f"{key}/{attempt}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64
