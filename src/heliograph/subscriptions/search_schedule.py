"""When a subscriber searches the database for signals: after a ring for one of its patterns, and in long intervals without a ring."""

from __future__ import annotations

from collections.abc import Iterable

from heliograph.world.ring_limit import TokenBucket
from heliograph.world.seam import ANNOUNCE_SECONDS, SIGNALS, SUBSCRIBERS, Subscription, World, bell_keys

POLL_SECONDS = 5.0  # the delay of a signal whose ring was lost
OUTAGE_SECONDS = 0.5  # between two attempts to reach the database
# after which an announcement has reached all processes: signals that they committed before did not ring
KNOWN_SECONDS = 0.5
_LATE_SECONDS = ANNOUNCE_SECONDS + 0.5  # after so long without an announcement, a process may not know the subscriber
# Searches that find nothing, because another subscriber of the name has the signals, or their rings were forged: after the first _BURST of them, a search waits for an
# interval, which doubles up to _LONGEST_SECONDS.
_BURST = 10
_INTERVAL_SECONDS = 0.05
_LONGEST_SECONDS = 0.5


class SearchSchedule:
    """Waits until a search may find signals. Call `clear`, search, report `found`, and `wait`, in this order.

    It announces the subscriber to all processes, because commits ring only where subscribers have announced themselves (`world.signal_bells`).
    A search that begins before its announcement has reached all processes is repeated.
    """

    def __init__(self, world: World, project: str, patterns: Iterable[str]):
        self._world = world
        distinct = sorted(set(patterns))
        self._bells = bell_keys(project, [f"{SIGNALS}{pattern}" for pattern in distinct])
        self._announcement = bell_keys(project, [f"{SUBSCRIBERS}{pattern}" for pattern in distinct])
        self._announced_at = self._known_at = float("-inf")
        self._searched_at = float("-inf")
        self._bell: Subscription | None = None
        self._pace = TokenBucket(_INTERVAL_SECONDS, _LONGEST_SECONDS, _BURST)

    def clear(self) -> None:
        """Forget earlier rings: the search that follows sees their signals."""
        self._announce()
        self._searched_at = self._world.monotonic()
        if self._bell is None:
            self._bell = self._world.subscribe(self._bells)
        self._bell.clear()

    def found(self) -> None:
        """Report that the search found signals: it does not delay the next one."""
        self._pace.refund()
        if self._bell is not None:
            self._bell.found()

    async def wait(self, due_seconds: float | None) -> None:
        """Wait for a ring, for at most `due_seconds` and POLL_SECONDS. Rings that lead to no signals are merged."""
        until = self._world.monotonic() + (POLL_SECONDS if due_seconds is None else min(due_seconds, POLL_SECONDS))
        if self._searched_at < self._known_at:
            until = min(until, self._known_at)
        while (now := self._world.monotonic()) < until:
            seconds = min(until, self._announced_at + ANNOUNCE_SECONDS) - now
            if self._bell is None:
                await self._world.sleep(seconds)
            elif await self._bell.wait(seconds):
                return await self._world.sleep(self._pace.take(self._world.monotonic()))
            self._announce()
        return None

    def close(self) -> None:
        """Receive no rings until the next `clear`."""
        if self._bell is not None:
            self._bell.close()
            self._bell = None

    def end(self, *, had_runs: bool) -> None:
        """Stop searching. had_runs: the subscriber has released runs whose signals it has not processed; the other subscribers of the name passed over them."""
        self.close()
        if had_runs:
            self._world.ring(self._bells[:1])

    def _announce(self) -> None:
        now = self._world.monotonic()
        if now - self._announced_at >= ANNOUNCE_SECONDS:
            if now - self._announced_at > _LATE_SECONDS:
                self._known_at = now + KNOWN_SECONDS
            self._announced_at = now
            self._world.ring(self._announcement)
