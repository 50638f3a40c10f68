"""The pause of a subscriber whose target accepts no signals: for all of its runs in this process, and longer each time."""

from __future__ import annotations

import logging

from heliograph.adapters.base import TargetUnavailable
from heliograph.policy.retry import RetryPolicy
from heliograph.world.seam import World

log = logging.getLogger("heliograph.subscriptions")

PAUSES = RetryPolicy(initial_delay_seconds=0.5, max_delay_seconds=60.0, jitter_least=0.5)
RETRY_AFTER_SECONDS_MAX = 3600.0


class TargetOutage:
    """Counts the failures since the last success. The start and the end of an outage are logged, each once."""

    def __init__(self, world: World, subscription: str):
        self._world = world
        self._subscription = subscription
        self._failures = 0
        self._until = 0.0
        self.last: TargetUnavailable | None = None

    @property
    def is_on(self) -> bool:
        return self._failures > 0

    @property
    def left_seconds(self) -> float:
        """How long the pause still lasts; after it, one run shows whether the target is back."""
        return max(0.0, self._until - self._world.monotonic()) if self._failures else 0.0

    def failed(self, error: TargetUnavailable) -> float:
        """Begin a pause, or continue the present one, which other runs have begun; return its seconds."""
        if (left := self.left_seconds) > 0:
            return left
        self.last = error
        self._failures += 1
        after = min(error.retry_after_seconds, RETRY_AFTER_SECONDS_MAX)
        pause = PAUSES.delay_seconds(self._failures, self._subscription, after)
        self._until = self._world.monotonic() + pause
        if self._failures == 1:
            log.warning("subscription %s: %s; its signals wait in the log", self._subscription, error.message)
        return pause

    def succeeded(self) -> None:
        if self._failures:
            log.info("subscription %s continues", self._subscription)
        self._failures, self.last = 0, None
