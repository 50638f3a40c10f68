"""The retry policy of completion webhooks: the meaning of a receiver's HTTP status, and the delay before the next attempt. Pure."""

from __future__ import annotations

from heliograph.policy.retry import RetryPolicy

POLICY = RetryPolicy(
    max_attempts=12, initial_delay_seconds=5.0, factor=4.0, max_delay_seconds=6 * 3600.0, jitter_least=0.5
)  # over about a day and a half
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
    if attempt > POLICY.retries:
        return None
    return min(POLICY.delay_seconds(attempt, callback_id, retry_after_seconds), POLICY.max_delay_seconds)


# A callback that no worker has tried to send becomes a dead letter after the time that all attempts would have taken.
UNTRIED_SECONDS_MAX = POLICY.total_seconds_max
# A worker without a signing secret waits this long before it reports an unsigned callback: after an outage, workers with the secret
# may start later.
ONLOOKER_SECONDS = 3600.0
AWAY_SECONDS = 300.0  # after a longer pause between two looks, a worker starts to wait again
