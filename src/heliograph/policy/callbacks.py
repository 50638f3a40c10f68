"""The retry policy of completion webhooks: the meaning of a receiver's HTTP status, and the delay before the next attempt. Pure."""

from __future__ import annotations

from heliograph.policy.retry import backoff_seconds, jitter_of

ATTEMPTS_MAX = 12  # over about a day and a half
_FIRST_SECONDS = 5.0
_DELAY_SECONDS_MAX = 6 * 3600.0
_GONE = 410


def is_taken(status: int) -> bool:
    """Whether the receiver has accepted the webhook."""
    return 200 <= status < 300


def is_final(status: int) -> bool:
    """Whether the receiver will never accept the webhook. Any other status may be a temporary error."""
    return status == _GONE


def again_seconds(callback_id: str, attempt: int, retry_after_seconds: float = 0.0) -> float | None:
    """Return the delay after attempt number `attempt`; None after the last attempt, when the callback becomes a dead letter.

    The delays are 5, 20, 80 seconds and so on up to six hours, each multiplied by a factor from 0.5 to 1 that depends on the
    callback's id and the attempt. A longer Retry-After of the receiver is respected, up to six hours.
    """
    if attempt >= ATTEMPTS_MAX:
        return None
    delay = _delay_seconds(attempt, 0.5 + jitter_of(callback_id, attempt) / 2)
    return max(delay, min(retry_after_seconds, _DELAY_SECONDS_MAX))


def _delay_seconds(attempt: int, jitter: float) -> float:
    # two steps of the doubling backoff: each delay is four times the one before
    return backoff_seconds(2 * attempt - 1, jitter, first=_FIRST_SECONDS, at_most=_DELAY_SECONDS_MAX)


# A callback that no worker has tried to send becomes a dead letter after the time that all attempts would have taken.
UNTRIED_SECONDS_MAX = sum(_delay_seconds(attempt, 1.0) for attempt in range(1, ATTEMPTS_MAX))
# A worker without a signing secret waits this long before it reports an unsigned callback: after an outage, workers with the secret
# may start later.
ONLOOKER_SECONDS = 3600.0
AWAY_SECONDS = 300.0  # after a longer pause between two looks, a worker starts to wait anew
