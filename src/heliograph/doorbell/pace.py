"""A token bucket that bounds how often rings from outside make a process look for work."""

from __future__ import annotations


class Pace:
    """The bucket: each ring that is passed on at once takes a token, and each interval adds one.

    A look that found work returns its token, since work cannot be forged. So the rings of a busy project pass without
    delay, and forged ones, which lead to nothing, empty the bucket: from then on one ring per interval is passed on.
    """

    def __init__(self, interval_seconds: float, burst: int):
        self._interval_seconds = interval_seconds
        self._burst = burst
        self._left = float(burst)
        self._at = 0.0

    def take(self, now: float) -> float:
        """Take a token for a ring; return the seconds after which the ring may be passed on."""
        self._left = min(self._burst, self._left + (now - self._at) / self._interval_seconds) - 1
        self._at = now
        return max(0.0, -self._left * self._interval_seconds)

    def give_back(self) -> None:
        self._left = min(self._burst, self._left + 1)
