"""The runs that the subscribers of a process have taken: one call renews the leases of all of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from heliograph.errors import HeliographError
from heliograph.ledger.signal_feed import SignalFeed, TakenRun
from heliograph.world.seam import World

log = logging.getLogger("heliograph.subscriptions")

LEASE_SECONDS = 60.0


class LeasedRun:
    """A run under a lease. done: the last processed position. delay_seconds: the time after its release in which nobody takes it.

    is_lost: its lease is lost, so that another subscriber may have it.
    """

    def __init__(self, name: str, subscriber: str, taken: TakenRun, owner: asyncio.Task[object] | None):
        self.name = name
        self.subscriber = subscriber
        self.run_id = taken.run_id
        self.done = taken.after + taken.pruned
        self.delay_seconds = 0.0
        self.is_lost = False
        self.owner = owner

    @property
    def key(self) -> tuple[str, str, str]:
        return self.name, self.subscriber, self.run_id

    def item(self, **seconds: float) -> dict[str, Any]:
        """Its item for `record_positions`."""
        return {
            "name": self.name,
            "subscriber": self.subscriber,
            "run_id": self.run_id,
            "position": self.done,
        } | seconds


class LeasedRuns:
    """The runs of the subscribers of one project in this process. It renews their leases three times while they last."""

    def __init__(self, world: World, feed: SignalFeed, lease_seconds: float):
        self.lease_seconds = lease_seconds
        self._world = world
        self._feed = feed
        self._leased: set[LeasedRun] = set()
        self._releases: set[asyncio.Task[None]] = set()
        self._keeper: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def renewing(
        self, name: str, subscriber: str, taken: TakenRun, owner: asyncio.Task[object] | None = None
    ) -> AsyncIterator[LeasedRun]:
        """Renew the lease of a run in the block. At its end, record how far the subscriber came, and release the run.

        owner: a task to cancel if the lease is lost.
        """
        if taken.pruned:
            log.warning(
                "subscription %s missed up to %d signals of run %s, which were pruned", name, taken.pruned, taken.run_id
            )
        leased = LeasedRun(name, subscriber, taken, owner)
        # a run that is taken again, because its lease had lapsed
        self._lose([each for each in self._leased if each.key == leased.key])
        self._leased.add(leased)
        if self._keeper is None:
            self._keeper = asyncio.create_task(self._keep(), name="subscriptions renew")
        try:
            yield leased
        finally:
            self._leased.discard(leased)
            if not self._leased and self._keeper is not None:
                self._keeper.cancel()
                self._keeper = None
            if not leased.is_lost:
                release = asyncio.create_task(
                    self._release(leased), name=f"subscription {name} releases {leased.run_id}"
                )
                self._releases.add(release)
                release.add_done_callback(self._releases.discard)
                await asyncio.shield(release)

    async def settled(self) -> None:
        """Wait for the releases of runs whose blocks have ended. A block that is cancelled twice does not wait for its own."""
        while self._releases:
            await asyncio.wait(set(self._releases))

    async def _release(self, leased: LeasedRun) -> None:
        try:
            [result] = await self._feed.record([leased.item(delay_seconds=leased.delay_seconds)])
            problem = result.message if result.outcome == "rejected" else None
        except HeliographError as error:
            problem = error.message
        if problem is not None:  # the signals are delivered again after the lease
            log.warning(
                "subscription %s: the position in run %s is not recorded: %s", leased.name, leased.run_id, problem
            )

    async def _keep(self) -> None:
        renewed_at = self._world.monotonic()
        while self._keeper is asyncio.current_task():  # the driver may lose a cancellation
            await self._world.sleep(self.lease_seconds / 3)
            leased = [each for each in self._leased if not each.is_lost]
            started_at = self._world.monotonic()
            try:
                items = [each.item(lease_seconds=self.lease_seconds) for each in leased]
                results = await self._feed.record(items) if items else []
                kept = {each for each, result in zip(leased, results, strict=True) if result.outcome == "ok"}
            except HeliographError as error:  # also one that passes, such as a right that a login gets back
                log.info("the leases of subscriptions are not renewed: %s", error.message)
                if self._world.monotonic() - renewed_at < self.lease_seconds:
                    continue
                kept = set()
            renewed_at = started_at
            self._lose([each for each in leased if each not in kept and each in self._leased])

    def _lose(self, lost: Iterable[LeasedRun]) -> None:
        for each in lost:
            each.is_lost = True
            if each.owner is not None:
                each.owner.cancel()
