"""Deliver the signals of one run to an adapter, without a durable name: in their order, from a position on.

The log is the queue, as for durable subscriptions (`subscriptions.deliveries`): a slow adapter has one page, and the signals after it wait
in the database. No other process shares these signals, and the database does not record the position: it ends with this object.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from heliograph.adapters.base import AdapterServices, Receive, TargetUnavailable
from heliograph.definitions.signal_subscribers import SignalSubscriber
from heliograph.signals.model import Signal
from heliograph.signals.pattern_table import name_filter
from heliograph.subscriptions.target_outage import TargetOutage


class RunDeliveries:
    """The deliveries of one run to one subscriber. position: that of the last signal that the adapter has received, or need not receive."""

    def __init__(self, subscriber: SignalSubscriber):
        self.position = 0
        self._subscriber = subscriber
        self._is_wanted = name_filter(subscriber.patterns)

    async def run(self, services: AdapterServices, pages: AsyncGenerator[Sequence[Signal], None]) -> None:
        """Deliver the pages of a log, which begin after `position`, until they end.

        It may be cancelled: the next call continues after the last signal that the adapter has received. Raises the errors of the pages and of
        the adapter, except TargetUnavailable: after a pause, the adapter receives the same signals again.
        """
        outage = TargetOutage(services.world, self._subscriber.name)
        async with aclosing(pages), self._subscriber.adapter.open(services, self._subscriber) as receive:
            async for page in pages:
                await self._deliver(page, receive, services, outage)

    async def _deliver(
        self, page: Sequence[Signal], receive: Receive, services: AdapterServices, outage: TargetOutage
    ) -> None:
        size = self._subscriber.adapter.page
        for start in range(0, len(page), size):
            part = page[start : start + size]
            wanted = [signal for signal in part if self._is_wanted(signal.name)]
            while wanted:
                try:
                    await receive(wanted)
                    break
                except TargetUnavailable as error:
                    await services.world.sleep(outage.failed(error))
            outage.succeeded()
            self.position = part[-1].seq
