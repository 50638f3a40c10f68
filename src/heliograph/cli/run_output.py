"""The output of `helio run`: the adapter that shows the signals of a run on a view."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from heliograph.adapters.base import AdapterServices, Receive
from heliograph.cli.output_thread import OutputThread
from heliograph.definitions.signal_subscribers import SignalSubscriber
from heliograph.signals.model import Signal


class RunOutput:
    """Shows each signal on a view, no faster than the view prints. on_printed: called with each signal, after the view has accepted it.

    An output that is closed or full ends the deliveries, and with them the command: raises OutputClosed, OutputFailed.
    """

    kind = "run"
    page = 1
    target = "the output of helio run"

    def __init__(self, view: OutputThread, on_printed: Callable[[Signal], None]):
        self._view = view
        self._on_printed = on_printed

    @asynccontextmanager
    async def open(self, services: AdapterServices, subscription: SignalSubscriber) -> AsyncIterator[Receive]:
        async def receive(signals: Sequence[Signal]) -> None:
            for signal in signals:
                await self._view.ready()
                self._view.show(signal)
                self._on_printed(signal)

        yield receive
