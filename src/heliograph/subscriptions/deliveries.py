"""Deliver signals to the adapter of a subscription: in the order of each run, several runs at once, and at least once.

The log is the queue: a slow target takes few runs, and the others wait in the database. Signals that the target rejects are sent again
after a pause, up to `max_attempts` times; then they are skipped, with an error in the process's log. Signals that follow them in the
same run wait. While the target accepts nothing at all, all runs wait, and no signal is skipped. No turn waits for a subscriber.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from heliograph.adapters.base import AdapterServices, DeliveryFailed, Receive, TargetGone, TargetUnavailable
from heliograph.definitions.signal_subscribers import SignalSubscriber
from heliograph.error_text import counted, format_exception
from heliograph.errors import StoreUnavailable
from heliograph.ledger.signal_feed import SignalFeed, Taken, TakenRun
from heliograph.policy.retry import RetryPolicy
from heliograph.signals.model import Signal
from heliograph.subscriptions.leased_runs import LEASE_SECONDS, LeasedRun, LeasedRuns
from heliograph.subscriptions.search_schedule import OUTAGE_SECONDS, SearchSchedule
from heliograph.subscriptions.target_outage import TargetOutage
from heliograph.world.cancellation import cancel

log = logging.getLogger("heliograph.subscriptions")

RUNS_MAX = 8  # that one subscriber of a process has at a time
# The functions of an application may clean up: each is cancelled again after this time, and abandoned after five seconds.
_CLEANUP_SECONDS, _CANCELS_MAX = 1.0, 5
_BETWEEN = RetryPolicy(initial_delay_seconds=0.5, max_delay_seconds=60.0, jitter=False)


class Deliveries:
    """The deliveries to one subscriber in this process. `drain` ends `run`. skipped: the number of skipped signals.

    leases: those of all subscribers of the process in the project.
    """

    def __init__(self, services: AdapterServices, subscriber: SignalSubscriber, leases: LeasedRuns | None = None):
        self.subscriber = subscriber
        self.skipped = 0
        self.outage = TargetOutage(services.world, subscriber.name)
        self.unavailable: StoreUnavailable | None = None  # of the last search
        self.has_others = False  # another process, or one that was killed, had runs with signals at the last search
        self._services = services
        self._feed = SignalFeed(services.world, services.project)
        self._process = services.world.new_id("sub")
        self._leases = leases or LeasedRuns(services.world, self._feed, LEASE_SECONDS)
        self._schedule = SearchSchedule(services.world, services.project, subscriber.patterns)
        self._active: set[asyncio.Task[None]] = set()
        self._failures: dict[str, tuple[int, int]] = {}  # by run: the signal that failed last, and how often
        self._gone: TargetGone | None = None
        self._is_draining = False
        self._is_ending = False  # all deliveries are cancelled
        self._changed = asyncio.Event()  # a delivery or a thread has ended, or `drain` was called
        services.on_thread_end = self._changed.set

    @property
    def is_behind(self) -> bool:
        """Whether signals wait that the target has not accepted."""
        return self.outage.is_on or bool(self._failures)

    async def subscribe(self) -> None:
        """Create the subscription if it is new. Raises the errors of `SignalFeed.subscribe`."""
        await self._feed.subscribe(self.subscriber.name, self.subscriber.patterns, self.subscriber.since, {})

    async def run(self) -> None:
        """Deliver signals until `drain`. Cancel it to release the runs at once.

        Raises TargetGone, the errors of `SignalAdapter.open`, and NotFound or Rejected if the login may no longer receive the signals.
        """
        async with self.subscriber.adapter.open(self._services, self.subscriber) as receive:
            try:
                while await self._take(receive):
                    pass
            finally:
                had_runs = bool(self._active) or self._gone is not None
                self._is_ending = True
                try:
                    await cancel(self._active, _CLEANUP_SECONDS, _CANCELS_MAX)
                    await self._leases.settled()
                finally:
                    self._schedule.end(had_runs=had_runs)

    def drain(self) -> None:
        """Let `run` return once all recorded signals are delivered, or the target accepts none."""
        self._is_draining = True
        self._changed.set()

    async def _take(self, receive: Receive) -> bool:
        """Take runs and start to deliver their signals; return whether to continue. Raises TargetGone."""
        if self._gone is not None:
            raise self._gone
        self._changed.clear()
        pause = self.outage.left_seconds
        most = 1 if self.outage.is_on else RUNS_MAX
        free = 0 if pause else most - max(len(self._active), self._services.threads)
        runs, more, seconds = await self._search(free) if free > 0 else Taken([], False, None)
        for taken in runs:
            self._schedule.found()
            task = asyncio.create_task(
                self._deliver(taken, receive), name=f"subscription {self.subscriber.name} {taken.run_id}"
            )
            self._active.add(task)
            task.add_done_callback(self._ended)
        if self._is_draining and not runs and not more and not self._active:
            return False
        if free <= len(runs):
            self._schedule.close()  # a subscriber that hangs or pauses costs nothing: commits do not ring for it
            await self._until_changed(pause or None)
        elif not more:
            await self._until_next_search(seconds)
        return True

    async def _until_changed(self, seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            pass

    async def _until_next_search(self, seconds: float | None) -> None:
        """Wait until a search may find signals."""
        waits = [asyncio.create_task(self._changed.wait()), asyncio.create_task(self._schedule.wait(seconds))]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waits:
                task.cancel()

    async def _search(self, limit: int) -> Taken:
        self._schedule.clear()
        try:
            taken = await self._feed.take(self.subscriber.name, self._process, limit, self._leases.lease_seconds)
        except StoreUnavailable as error:
            if self.unavailable is None:
                log.info("subscription %s waits for the database: %s", self.subscriber.name, error.message)
            self.unavailable = error
            return Taken([], False, OUTAGE_SECONDS)
        self.unavailable, self.has_others = None, taken.due_seconds is not None
        return taken

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._active.discard(task)
        self._changed.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("subscription %s: %s", self.subscriber.name, format_exception(error), exc_info=error)

    async def _deliver(self, taken: TakenRun, receive: Receive) -> None:
        page = self.subscriber.adapter.page
        name, task = self.subscriber.name, asyncio.current_task()
        async with self._leases.renewing(name, self._process, taken, task) as leased:
            for start in range(0, len(taken.signals), page):
                signals = taken.signals[start : start + page]
                if not await self._handled(signals, leased, receive):
                    return
                leased.done = signals[-1].seq
            leased.done = taken.upto

    async def _handled(self, signals: Sequence[Signal], leased: LeasedRun, receive: Receive) -> bool:
        """Send signals of a run; return False if they have to be delivered again."""
        try:
            await receive(signals)
        except TargetUnavailable as error:
            leased.delay_seconds = self.outage.failed(error)
            return False
        except TargetGone as error:
            self._gone = error
            return False
        except DeliveryFailed as error:
            return self._rejected(signals, leased, error.message, is_final=error.is_final)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or leased.is_lost or self._is_ending:
                raise
            while task.cancelling():  # the function has cancelled the task that calls it
                task.uncancel()
            return self._rejected(signals, leased, "it cancelled its own task", is_final=False)
        except (Exception, BaseExceptionGroup, SystemExit, KeyboardInterrupt) as error:
            # the message may quote the payload
            return self._rejected(signals, leased, f"it raised {type(error).__name__}", is_final=False)
        self._failures.pop(leased.run_id, None)
        self.outage.succeeded()
        return True

    def _rejected(self, signals: Sequence[Signal], leased: LeasedRun, problem: str, *, is_final: bool) -> bool:
        """Count a failed attempt; return True if the signals are skipped."""
        name, most = self.subscriber.name, self.subscriber.max_attempts
        seq, count = self._failures.pop(leased.run_id, (0, 0))
        count = count + 1 if seq == signals[0].seq else 1
        what = signals[0].id if len(signals) == 1 else f"{signals[0].id} to {signals[-1].id}"
        if is_final or count >= most:
            self.skipped += len(signals)
            log.error("subscription %s skips %s after %s: %s", name, what, counted(count, "attempt"), problem)
            return True
        self._failures[leased.run_id] = signals[0].seq, count
        leased.delay_seconds = _BETWEEN.delay_seconds(count, signals[0].id)
        log.warning("subscription %s: %s failed on %s, attempt %d of %d: %s", name, self.subscriber.adapter.target, what,
                    count, most, problem)  # fmt: skip
        return False
