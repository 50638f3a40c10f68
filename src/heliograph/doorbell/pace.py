"""How often rings from outside may lead to a look: whatever rings, and however often, costs a bounded number of looks."""

from __future__ import annotations


class Pace:
    """Tokens of a bucket: one for each ring that is passed on at once; one comes back in each interval.

    A look that found work gives its token back, since nobody can forge work. So the rings of a busy project pass without
    delay, and forged ones, which lead to nothing, empty the bucket: from then on one ring in each interval is passed on.
    """

    def __init__(self, interval_seconds: float, burst: int):
        self._interval_seconds = interval_seconds
        self._burst = burst
        self._left = float(burst)
        self._at = 0.0

    def take(self, now: float) -> float:
        """Take a token for a ring; answers the seconds after which the ring may be passed on."""
        self._left = min(self._burst, self._left + (now - self._at) / self._interval_seconds) - 1
        self._at = now
        return max(0.0, -self._left * self._interval_seconds)

    def give_back(self) -> None:
        self._left = min(self._burst, self._left + 1)
