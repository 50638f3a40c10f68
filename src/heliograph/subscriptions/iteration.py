"""Iterate over the signals of a durable subscription."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from heliograph.definitions.signal_definition import SignalDefinition
from heliograph.definitions.signal_subscribers import loaded
from heliograph.errors import StoreUnavailable
from heliograph.ledger.signal_feed import SignalFeed, Taken
from heliograph.signals.model import Signal
from heliograph.subscriptions.leased_runs import LeasedRuns
from heliograph.subscriptions.search_schedule import OUTAGE_SECONDS, SearchSchedule
from heliograph.world.seam import World


async def deliveries_of(
    world: World,
    feed: SignalFeed,
    name: str,
    patterns: Sequence[str],
    definitions: Mapping[str, SignalDefinition[Any]],
    lease_seconds: float,
) -> AsyncGenerator[Signal[Any], None]:
    """Yield the signals of a subscription without end, run by run. A signal counts as processed when the next one is requested.

    Waits for a database that is unreachable. Raises NotFound (`unknown_subscription`), Rejected (`pattern_not_granted`), and InvalidInput for a
    payload that does not match its definition; the signal is then delivered again.
    """
    leases, subscriber = LeasedRuns(world, feed, lease_seconds), world.new_id("sub")
    schedule, has_run = SearchSchedule(world, feed.project, patterns), False
    try:
        while True:
            schedule.clear()
            try:
                runs, more, seconds = await feed.take(name, subscriber, 1, lease_seconds)
            except StoreUnavailable:
                runs, more, seconds = Taken([], False, OUTAGE_SECONDS)
            for taken in runs:
                schedule.found()
                has_run = True
                async with leases.renewing(name, subscriber, taken) as leased:
                    for signal in taken.signals:
                        yield loaded(signal, definitions)
                        if leased.is_lost:  # another process of this name has the run, from this signal on
                            break
                        leased.done = signal.seq
                    else:
                        leased.done = taken.upto
                has_run = False
            if not runs and not more:
                await schedule.wait(seconds)
    finally:
        schedule.end(had_runs=has_run)
