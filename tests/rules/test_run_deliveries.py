"""The deliveries of one run to an adapter without a durable name, as those to the output of `helio run`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from heliograph.adapters.base import AdapterServices, DeliveryFailed, Receive, TargetUnavailable
from heliograph.cli.run_output import RunOutput
from heliograph.definitions.signal_subscribers import signal_subscriber
from heliograph.errors import StoreUnavailable
from heliograph.signals.model import Signal
from heliograph.subscriptions.run_deliveries import RunDeliveries
from tests.rules.playback_kit import signal

LOG = [signal(seq, "a:b" if seq % 3 else "a:c") for seq in range(1, 24)]


class Target:
    """An adapter that raises errors at some of its calls. received: positions."""

    kind, target = "test", "the test"

    def __init__(self, page: int, errors: dict[int, BaseException] | None = None):
        self.page = page
        self.errors = errors or {}
        self.received: list[int] = []
        self.calls = 0

    @asynccontextmanager
    async def open(self, services: AdapterServices, subscription: Any) -> AsyncIterator[Receive]:
        async def receive(signals: Sequence[Signal]) -> None:
            self.calls += 1
            if (error := self.errors.pop(self.calls, None)) is not None:
                raise error
            assert len(signals) <= self.page
            self.received += [each.seq for each in signals]

        yield receive


class Log:
    """Pages of five signals; the database is away before some of them. read: how many pages were read."""

    def __init__(self, outages: int = 0):
        self.outages = outages
        self.read = 0

    async def pages(self, after: int) -> AsyncGenerator[Sequence[Signal], None]:
        while page := LOG[after : after + 5]:
            if self.outages and self.read == 2:
                self.outages -= 1
                raise StoreUnavailable("it is away")
            self.read += 1
            yield page
            after += len(page)


class Clock:
    """The parts of a world that a pause needs."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return sum(self.slept)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


def opened(target: Any, *patterns: str) -> tuple[RunDeliveries, AdapterServices, Clock]:
    clock: Any = Clock()
    return (
        RunDeliveries(signal_subscriber("s", patterns or ("**",), target, "start", 1)),
        AdapterServices(clock, "p"),
        clock,
    )


@pytest.mark.proves("P-50")
@pytest.mark.parametrize("page", [1, 2, 200])
async def test_adapter_receives_each_signal_in_order_across_outages_of_log_and_target(page: int) -> None:
    target, log = Target(page, {2: TargetUnavailable("it is full"), 3: TargetUnavailable("it is full")}), Log(outages=2)
    deliveries, services, clock = opened(target)
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await deliveries.run(services, log.pages(deliveries.position))
    await deliveries.run(services, log.pages(deliveries.position))
    assert target.received == [each.seq for each in LOG]
    assert (deliveries.position, len(clock.slept)) == (23, 2)


async def test_adapter_receives_the_signals_of_its_patterns_and_the_position_passes_over_the_others() -> None:
    target = Target(200)
    deliveries, services, _ = opened(target, "a:c")
    await deliveries.run(services, Log().pages(0))
    assert (target.received, deliveries.position) == ([3, 6, 9, 12, 15, 18, 21], 23)


async def test_error_of_the_adapter_ends_the_deliveries_at_its_signal() -> None:
    target = Target(2, {4: DeliveryFailed("no")})
    deliveries, services, _ = opened(target)
    with pytest.raises(DeliveryFailed):
        await deliveries.run(services, Log().pages(0))
    assert (target.received, deliveries.position) == ([1, 2, 3, 4, 5], 5)
    await deliveries.run(services, Log().pages(deliveries.position))
    assert target.received == [each.seq for each in LOG]


@pytest.mark.proves("P-50")
async def test_slow_output_reads_no_further_page_and_loses_no_signal_when_it_is_cancelled() -> None:
    class View:
        """Takes seven signals, and then nothing until it is `free`."""

        def __init__(self) -> None:
            self.printed: list[int] = []
            self.free = asyncio.Event()
            self.full = asyncio.Event()

        async def ready(self) -> None:
            if len(self.printed) >= 7:
                self.full.set()
                await self.free.wait()

        def show(self, each: Signal) -> None:
            self.printed.append(each.seq)

    view, log, seen = View(), Log(), list[Signal]()
    deliveries, services, _ = opened(RunOutput(view, seen.append))  # type: ignore[arg-type]
    work = asyncio.create_task(deliveries.run(services, log.pages(0)))
    await view.full.wait()
    assert (log.read, deliveries.position) == (2, 7)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    view.free.set()
    await deliveries.run(services, log.pages(deliveries.position))
    assert view.printed == [each.seq for each in LOG] == [each.seq for each in seen]
