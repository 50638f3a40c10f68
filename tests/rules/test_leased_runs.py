"""Leases of the runs that subscribers have: an error of a renewal ends no later one, and a lease that lapsed is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest

from heliograph.errors import HeliographError, NotFound, StoreUnavailable
from heliograph.ledger.signal_feed import Recorded, TakenRun
from heliograph.subscriptions.leased_runs import LeasedRuns

LEASE_SECONDS = 60.0


class Clock:
    """A world whose time passes while it sleeps."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)
        self.seconds += seconds


class Feed:
    """Raises the errors in turn, then records. renewals: how often it did."""

    def __init__(self, errors: Sequence[HeliographError]):
        self.errors = list(errors)
        self.renewals = 0
        self.released = 0

    async def record(self, items: Sequence[dict[str, Any]]) -> list[Recorded]:
        if self.errors:
            raise self.errors.pop(0)
        assert len({item["run_id"] for item in items}) == len(items)
        is_renewal = "lease_seconds" in items[0]
        self.renewals += is_renewal
        self.released += not is_renewal
        return [Recorded("ok") for _ in items]


@pytest.mark.parametrize(
    "error", [StoreUnavailable("it is down"), NotFound("no project for this login")], ids=["down", "no right"]
)
@pytest.mark.parametrize("count", [1, 20])
async def test_renewals_continue_after_an_error_and_leases_that_lapsed_are_lost(
    error: HeliographError, count: int
) -> None:
    feed = Feed([error] * count)
    leases = LeasedRuns(Clock(), feed, LEASE_SECONDS)  # type: ignore[arg-type]
    ends = asyncio.create_task(asyncio.Event().wait())
    async with leases.renewing("s", "w", TakenRun("run_a", 0, 1, 0, []), ends) as leased:
        async with asyncio.timeout(20):
            while not feed.renewals and not leased.is_lost:  # noqa: ASYNC110  nothing announces it
                await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (leased.is_lost, ends.cancelled()) == (count > 1, count > 1)
    ends.cancel()


async def test_renewals_end_although_the_driver_loses_the_cancellation() -> None:
    class Loses(Feed):
        """Its first renewal begins, loses a cancellation, and succeeds."""

        begun = asyncio.Event()

        async def record(self, items: Sequence[dict[str, Any]]) -> list[Recorded]:
            if "lease_seconds" in items[0] and not self.begun.is_set():
                self.begun.set()
                with suppress(asyncio.CancelledError):
                    await asyncio.Event().wait()
            return await super().record(items)

    feed = Loses([])
    leases = LeasedRuns(Clock(), feed, LEASE_SECONDS)  # type: ignore[arg-type]
    async with leases.renewing("s", "w", TakenRun("run_a", 0, 1, 0, [])):
        keeper = leases._keeper
        await feed.begun.wait()
    assert keeper is not None
    async with asyncio.timeout(20):
        await keeper
    assert feed.renewals == 1


async def test_run_that_its_own_subscriber_takes_again_is_lost_to_the_older_delivery() -> None:
    """A process that was frozen for longer than its lease may search before it renews."""
    feed = Feed([])
    leases = LeasedRuns(Clock(), feed, LEASE_SECONDS)  # type: ignore[arg-type]
    ends = asyncio.create_task(asyncio.Event().wait())
    run = TakenRun("run_a", 0, 1, 0, [])
    async with leases.renewing("s", "w", run, ends) as older, leases.renewing("s", "w", run) as newer:
        await asyncio.sleep(0)
        assert (older.is_lost, ends.cancelled(), newer.is_lost) == (True, True, False)
        async with asyncio.timeout(20):
            while not feed.renewals:  # noqa: ASYNC110  nothing announces it
                await asyncio.sleep(0)
    assert feed.released == 1  # by the newer delivery
