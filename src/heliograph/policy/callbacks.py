"""What an answer to a callback means, and when it is tried again. Pure."""

from __future__ import annotations

from heliograph.policy.retry import backoff_seconds, jitter_of

ATTEMPTS_MAX = 12  # over about a day and a half
_FIRST_SECONDS = 5.0
_DELAY_SECONDS_MAX = 6 * 3600.0
_GONE = 410


def is_taken(status: int) -> bool:
    return 200 <= status < 300


def is_final(status: int) -> bool:
    """Whether a receiver says that it will never take it. All else may be a mistake that somebody mends."""
    return status == _GONE


def again_seconds(callback_id: str, attempt: int, retry_after_seconds: float = 0.0) -> float | None:
    """The delay before the next try, after try number `attempt`; None when there is none: it is a dead letter.

    5, 20, 80 seconds and so on up to six hours, each between a half and the whole of it. Who asks to be left alone is, for
    as long as the longest delay.
    """
    if attempt >= ATTEMPTS_MAX:
        return None
    delay = _delay_seconds(attempt, 0.5 + jitter_of(callback_id, attempt) / 2)
    return max(delay, min(retry_after_seconds, _DELAY_SECONDS_MAX))


def _delay_seconds(attempt: int, jitter: float) -> float:
    # four times as long each time: two steps of a delay that doubles
    return backoff_seconds(2 * attempt - 1, jitter, first=_FIRST_SECONDS, at_most=_DELAY_SECONDS_MAX)


# What nobody has tried for as long as all tries take, is a dead letter too: no worker was there that could.
UNTRIED_SECONDS_MAX = sum(_delay_seconds(attempt, 1.0) for attempt in range(1, ATTEMPTS_MAX))
# For so long a worker that cannot sign looks on before it says so: after a weekend that all were away, it may be the
# first one back, and those that can sign come, and try what they owe, soon after.
ONLOOKER_SECONDS = 3600.0
AWAY_SECONDS = 300.0  # not to have looked for so long is to have been away
