"""Decide when a failure that repeats is logged: once per outage, and again after pauses that grow."""

from __future__ import annotations

from collections.abc import Hashable

_FIRST_PAUSE_SECONDS = 30.0
_PAUSE_SECONDS_MAX = 1800.0


class OutageLog:
    """The outages that are going on, by the work that fails."""

    def __init__(self) -> None:
        self._silent: dict[Hashable, tuple[float, float]] = {}  # until when, and the pause after that

    def is_due(self, work: Hashable, now: float) -> bool:
        """Return whether this failure is logged. now: seconds of a monotonic clock."""
        until, pause = self._silent.get(work, (now, _FIRST_PAUSE_SECONDS))
        if now < until:
            return False
        self._silent[work] = now + pause, min(2 * pause, _PAUSE_SECONDS_MAX)
        return True

    def end(self, work: Hashable) -> None:
        """Record a success: the next failure begins another outage."""
        self._silent.pop(work, None)
