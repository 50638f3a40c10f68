"""Decide when a failure that repeats is logged: once per outage, and again after pauses that grow."""

from __future__ import annotations

from collections.abc import Hashable

from heliograph.policy.retry import RetryPolicy

_BETWEEN = RetryPolicy(initial_delay_seconds=30.0, max_delay_seconds=1800.0, jitter=False)


class OutageLog:
    """The outages that are going on, by the work that fails."""

    def __init__(self) -> None:
        self._silent: dict[Hashable, tuple[float, int]] = {}  # until when, and how often it was logged

    def is_due(self, work: Hashable, now: float) -> bool:
        """Return whether this failure is logged. now: seconds of a monotonic clock."""
        until, count = self._silent.get(work, (now, 0))
        if now < until:
            return False
        self._silent[work] = now + _BETWEEN.delay_seconds(count + 1, ""), count + 1
        return True

    def has(self, work: Hashable) -> bool:
        """Return whether this work fails at present."""
        return work in self._silent

    def end(self, work: Hashable) -> None:
        """Record a success: the next failure begins another outage."""
        self._silent.pop(work, None)
