"""Call a function for each signal: the adapter of `Heliograph.on_signal`."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from heliograph.adapters.base import AdapterServices, DeliveryFailed, Receive
from heliograph.definitions.functions import check_function
from heliograph.definitions.signal_subscribers import (
    SignalSubscriber,
    check_number,
    check_subscription_name,
    loaded,
    signal_subscriber,
)
from heliograph.errors import InvalidInput, TurnTimedOut
from heliograph.signals.model import Signal

SECONDS_MAX = 86_400


class Callback:
    """A plain or async function that takes one signal; signals with a definition have the model as their payload.

    timeout_seconds: of one call. A plain function has a thread of its own, which it keeps if it outlives its timeout.
    """

    kind = "callback"
    page = 1

    def __init__(self, function: Callable[[Any], Any], timeout_seconds: float):
        self._function = function
        self._seconds = timeout_seconds

    @property
    def target(self) -> str:
        return str(getattr(self._function, "__qualname__", "the function"))

    @asynccontextmanager
    async def open(self, services: AdapterServices, subscription: SignalSubscriber) -> AsyncIterator[Receive]:
        async def receive(signals: Sequence[Signal]) -> None:
            for signal in signals:
                try:
                    given = loaded(signal, subscription.definitions)
                except InvalidInput as error:
                    raise DeliveryFailed(error.message, is_final=True) from None
                try:
                    await services.world.within(self._seconds, self._call(services, given))
                except TurnTimedOut:
                    raise DeliveryFailed(f"it took longer than {self._seconds:g} s") from None

        yield receive

    async def _call(self, services: AdapterServices, signal: Signal[Any]) -> None:
        function = self._function
        if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004
            await function(signal)
            return
        result = await services.run_sync(function, signal)
        if inspect.isawaitable(result):
            await result


def function_subscriber(
    name: str, patterns: Sequence[Any], function: Any, since: str, timeout_seconds: float, max_attempts: int
) -> SignalSubscriber:
    """Check a function of an application that receives signals. Raises InvalidInput."""
    check_subscription_name(name)
    check_function(function, f"subscriber {name}", f"/subscribers/{name}", "the signal", waits=True)
    check_number(name, "timeout_seconds", timeout_seconds, SECONDS_MAX, fractions=True)
    return signal_subscriber(name, patterns, Callback(function, float(timeout_seconds)), since, max_attempts)
