"""Adapters in tests: the services that they use, and signals for them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from heliograph.adapters.base import AdapterServices, Receive
from heliograph.definitions.signal_subscribers import signal_subscriber
from heliograph.signals.model import Signal, Source
from heliograph.world import user_code

CANARY = "canary-adapters-51c7"
NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


class PlainWorld:
    """The parts of a World that adapters use. Functions that may block run at once."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    async def within(self, seconds: float | None, work: Awaitable[Any]) -> Any:
        return await user_code.within(seconds, work)

    async def run_sync(self, function: Callable[..., Any], *args: object, ended: Callable[[], None]) -> Any:
        try:
            return function(*args)
        finally:
            ended()


def logged(seq: int, name: str = "order:placed", payload: Any = None, agent: str | None = "clerk") -> Signal:
    return Signal(f"sig_r_{seq}", name, payload, NOW, Source(agent, "sig_r_1"), "r", seq, "turn_1")


@asynccontextmanager
async def opened(adapter: Any, *patterns: str, **offers: Any) -> AsyncIterator[Receive]:
    services = AdapterServices(PlainWorld(), "default", **offers)  # type: ignore[arg-type]
    subscriber = signal_subscriber("shop.target", patterns or ("**",), adapter, "now", 5)
    async with adapter.open(services, subscriber) as receive:
        yield receive
    assert services.threads == 0
