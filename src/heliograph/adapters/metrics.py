"""Count signals by their names, in the metrics of the process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from heliograph.adapters.base import PAGE, AdapterServices, Receive, TargetElsewhere
from heliograph.definitions.signal_subscribers import SignalSubscriber
from heliograph.signals.model import Signal

_WILD = "*"  # in a pattern


class Metrics:
    """Counts each signal in `heliograph_signals_total`, by the name of the subscription and of the signal.

    The metric is part of the metrics of a worker, in Prometheus' format and over OTLP. At most 100 names of signals become labels, and
    first those that the patterns spell out; further ones are counted as `other`.
    """

    kind = "metrics"
    page = PAGE
    target = "the metrics of this process"

    @asynccontextmanager
    async def open(self, services: AdapterServices, subscription: SignalSubscriber) -> AsyncIterator[Receive]:
        from heliograph.telemetry.metrics_names import SIGNALS_TOTAL

        if (registry := services.registry) is None:
            raise TargetElsewhere("this process shows no metrics: a helio worker with --listen ADDRESS, or with a collector for OpenTelemetry, counts the signals")  # fmt: skip
        registry.reserve("signal", [pattern for pattern in subscription.patterns if _WILD not in pattern])
        registry.reserve("subscription", [subscription.name])

        async def receive(signals: Sequence[Signal]) -> None:
            for signal in signals:
                registry.add(SIGNALS_TOTAL, subscription.name, signal.name)

        yield receive
