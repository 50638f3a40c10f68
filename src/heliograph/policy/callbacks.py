"""Retries of completion webhooks: the meaning of a receiver's status, and the delay before the next attempt. Pure."""

from __future__ import annotations

from heliograph.policy.retry import backoff_seconds, jitter_of

ATTEMPTS_MAX = 12  # over about a day and a half
_FIRST_SECONDS = 5.0
_DELAY_SECONDS_MAX = 6 * 3600.0
_GONE = 410


def is_taken(status: int) -> bool:
    return 200 <= status < 300


def is_final(status: int) -> bool:
    """Whether the receiver will never accept it. Any other status may be an error that gets fixed."""
    return status == _GONE


def again_seconds(callback_id: str, attempt: int, retry_after_seconds: float = 0.0) -> float | None:
    """The delay after attempt number `attempt`; None after the last one, which makes the callback a dead letter.

    5, 20, 80 seconds and so on up to six hours, each multiplied by a random factor from a half to one. A receiver's
    Retry-After is respected, up to the longest delay.
    """
    if attempt >= ATTEMPTS_MAX:
        return None
    delay = _delay_seconds(attempt, 0.5 + jitter_of(callback_id, attempt) / 2)
    return max(delay, min(retry_after_seconds, _DELAY_SECONDS_MAX))


def _delay_seconds(attempt: int, jitter: float) -> float:
    # four times as long each time: two steps of the doubling backoff
    return backoff_seconds(2 * attempt - 1, jitter, first=_FIRST_SECONDS, at_most=_DELAY_SECONDS_MAX)


# A callback without an attempt for as long as all attempts take becomes a dead letter, too: no worker could send it.
UNTRIED_SECONDS_MAX = sum(_delay_seconds(attempt, 1.0) for attempt in range(1, ATTEMPTS_MAX))
# A worker without a signing secret waits for this long before it reports an unsigned callback: after an outage it may be
# the first worker to start, and workers with the secret may follow soon.
ONLOOKER_SECONDS = 3600.0
AWAY_SECONDS = 300.0  # a worker that has not looked for this long counts as having been away
