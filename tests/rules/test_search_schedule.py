"""Subscribers search after a ring and not before; commits ring for them only while they announce themselves."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from heliograph.adapters.base import AdapterServices
from heliograph.adapters.callback import function_subscriber
from heliograph.ledger.signal_feed import SignalFeed
from heliograph.subscriptions import search_schedule
from heliograph.subscriptions.deliveries import RUNS_MAX, Deliveries
from heliograph.world.real import RealWorld

APPEND = "append", "one", [{"signals": [{"name": "a:b"}]}]
NOTHING: dict[str, Any] = {"outcome": "taken", "runs": [], "more": False, "due_seconds": None}


class Store:
    """A kernel without signals, unless a test adds answers; it counts the calls."""

    def __init__(self, key: object = "01" * 32) -> None:
        self.key = key
        self.calls: list[str] = []
        self.answers: list[dict[str, Any]] = []

    async def call(self, function: str, *_: object) -> Any:
        self.calls.append(function)
        if function == "bell_key":
            return self.key
        if function != "take_signals":
            return [{"run_id": "r", "outcome": "ok"}]
        return self.answers.pop(0) if self.answers else NOTHING

    @property
    def searches(self) -> int:
        return self.calls.count("take_signals")


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_new_subscription_looks_rarely_whether_a_long_transaction_has_ended() -> None:
    pauses: list[float] = []

    class Waiting:
        async def call(self, *_: object) -> Any:
            return {"outcome": "subscribed" if len(pauses) == 10 else "opening"}

        async def sleep(self, seconds: float) -> None:
            pauses.append(seconds)

    assert await SignalFeed(Waiting(), "one").subscribe("s", ["**"], "now", {})  # type: ignore[arg-type]
    assert (pauses[0], pauses[-1]) == (0.005, 0.5)


async def test_idle_subscriber_searches_once_and_then_at_once_after_each_ring() -> None:
    store = Store()
    world = RealWorld(store, None)  # type: ignore[arg-type]
    subscriber = function_subscriber("s", ["**"], lambda signal: None, "now", 60.0, 5)
    deliveries = Deliveries(AdapterServices(world, "one"), subscriber)
    await world.bells.learn("one")
    task = asyncio.create_task(deliveries.run())
    await asyncio.sleep(0.03)
    assert store.searches == 1
    for count in (2, 3):
        await world.call(*APPEND)
        await settled()
        assert store.searches == count
    deliveries.drain()
    await task


async def test_rings_of_signals_that_match_no_pattern_are_merged_after_a_burst(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_schedule, "_INTERVAL_SECONDS", 3600.0)
    store = Store()
    world = RealWorld(store, None)  # type: ignore[arg-type]
    listening, rung = search_schedule.SearchSchedule(world, "one", ["a:b"]), 0
    for _ in range(100):
        listening.clear()
        await world.call(*APPEND)
        try:
            async with asyncio.timeout(0.2):
                await listening.wait(None)
        except TimeoutError:
            break
        rung += 1
    assert rung == 10
    listening.found()
    listening.close()


async def test_subscriber_whose_calls_hang_receives_no_rings() -> None:
    store = Store()
    world = RealWorld(store, None)  # type: ignore[arg-type]
    signal = {"id": "sig_r_1", "run_id": "r", "seq": 1, "name": "a:b", "payload": {}, "agent": None, "parent": None, "turn_id": None,
              "timestamp": "2026-01-01T00:00:00+00:00"}  # fmt: skip
    runs = [{"run_id": f"r{n}", "after": 0, "upto": 1, "pruned": 0, "signals": [signal]} for n in range(RUNS_MAX)]
    store.answers = [{"outcome": "taken", "runs": runs, "more": False, "due_seconds": None}]
    begun = 0

    async def hang(_: object) -> None:
        nonlocal begun
        begun += 1
        await asyncio.Event().wait()

    deliveries = Deliveries(AdapterServices(world, "one"), function_subscriber("s", ["**"], hang, "now", 60.0, 5))
    task = asyncio.create_task(deliveries.run())
    while begun < RUNS_MAX:  # noqa: ASYNC110  nothing announces that a call has begun
        await asyncio.sleep(0)
    await world.call(*APPEND)
    await settled()
    assert store.searches == 1
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
