"""A token bucket that bounds how often rings from outside make a process check for work."""

from __future__ import annotations


class TokenBucket:
    """The bucket: each ring that is passed on takes a token, and each interval adds one.

    A check that finds work returns its token, since work cannot be forged. So the rings of a busy project pass without
    delay. Forged rings lead to no work and empty the bucket. From then on one ring per interval is passed on, and each
    of them doubles the interval, up to `longest_seconds`. A check that finds work, or a full bucket, ends the doubling.
    """

    def __init__(self, interval_seconds: float, longest_seconds: float, burst: int):
        self._first_seconds = interval_seconds
        self._longest_seconds = longest_seconds
        self._burst = burst
        self._interval_seconds = interval_seconds
        self._tokens = float(burst)
        self._at = 0.0

    def take(self, now: float) -> float:
        """Take a token for a ring; return the seconds after which the ring may be passed on."""
        tokens = min(self._burst, self._tokens + max(0.0, now - self._at) / self._interval_seconds)
        if tokens == self._burst:
            self._interval_seconds = self._first_seconds
        if tokens >= 1:
            self._tokens, self._at = tokens - 1, now
            return 0.0
        seconds = (1 - tokens) * self._interval_seconds
        self._tokens, self._at = 0.0, now + seconds
        self._interval_seconds = min(self._longest_seconds, 2 * self._interval_seconds)
        return seconds

    def refund(self) -> None:
        """Return the token of a ring that led to work, and end the doubling."""
        self._tokens = min(self._burst, self._tokens + 1)
        self._interval_seconds = self._first_seconds
