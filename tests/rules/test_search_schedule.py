"""Subscribers search after a ring and not before; commits ring for them only while they announce themselves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any, cast

import pytest

from heliograph import Client
from heliograph.adapters.base import AdapterServices, TargetGone
from heliograph.adapters.callback import function_subscriber
from heliograph.ledger.signal_feed import SignalFeed
from heliograph.signals.model import Signal
from heliograph.subscriptions import search_schedule
from heliograph.subscriptions.deliveries import RUNS_MAX, Deliveries
from heliograph.subscriptions.iteration import deliveries_of
from heliograph.world.real import RealWorld

APPEND = "append", "one", [{"signals": [{"name": "a:b"}]}]
NOTHING: dict[str, Any] = {"outcome": "taken", "runs": [], "more": False, "due_seconds": None}


SIGNAL = {"id": "sig_r_1", "run_id": "r", "seq": 1, "name": "a:b", "payload": {}, "agent": None, "parent": None, "turn_id": None,
          "timestamp": "2026-01-01T00:00:00+00:00"}  # fmt: skip


def taken(*run_ids: str) -> dict[str, Any]:
    runs = [{"run_id": run_id, "after": 0, "upto": 1, "pruned": 0, "signals": [SIGNAL]} for run_id in run_ids]
    return {"outcome": "taken", "runs": runs, "more": False, "due_seconds": None}


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
    store.answers = [taken(*(f"r{n}" for n in range(RUNS_MAX)))]
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


class OneRun(Store):
    """A kernel with one signal, which one subscriber at a time has. Each call takes some rounds of the event loop."""

    is_leased = False

    async def call(self, function: str, *arguments: object) -> Any:
        await asyncio.sleep(0)
        self.calls.append(function)
        if function == "subscribe":
            return {"outcome": "duplicate"}
        if function == "record_positions":
            self.is_leased = False
            return [{"outcome": "ok"}]
        if function != "take_signals":
            return self.key
        if self.is_leased:
            return {**NOTHING, "due_seconds": 60.0}
        self.is_leased = True
        return taken("r")


def iterator(world: RealWorld) -> AsyncGenerator[Signal, None]:
    feed = SignalFeed(world, "one")
    return deliveries_of(world, feed, "s", ["a:b"], {}, 60.0)


async def test_subscriber_that_ends_rings_for_others_that_searched_while_it_had_their_run() -> None:
    store = OneRun()
    world = RealWorld(store, None)  # type: ignore[arg-type]
    await world.bells.learn("one")
    async with aclosing(iterator(world)) as first, aclosing(iterator(world)) as second:
        await anext(first)
        waits = asyncio.ensure_future(anext(second))
        await settled()
        assert store.searches == 2
        await first.aclose()
        await settled()
        assert waits.done()


@pytest.mark.parametrize("ends", ["cancelled", "gone"])
async def test_subscriber_of_an_application_that_ends_rings_for_others_of_its_name(ends: str) -> None:
    store = OneRun()
    world = RealWorld(store, None)  # type: ignore[arg-type]
    await world.bells.learn("one")
    is_gone = asyncio.Event()

    async def hang(_: object) -> None:
        await is_gone.wait()
        raise TargetGone("it has no access")

    received = function_subscriber("s", ["a:b"], hang, "now", 60.0, 5)
    deliveries = Deliveries(AdapterServices(world, "one"), received)
    task = asyncio.create_task(deliveries.run())
    await settled()
    async with aclosing(iterator(world)) as second:
        waits = asyncio.ensure_future(anext(second))
        await settled()
        assert store.searches == 2
        is_gone.set() if ends == "gone" else task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await settled()
        assert waits.done()


async def test_iterator_of_a_client_that_is_closed_has_released_its_run() -> None:
    store = OneRun()
    runtime = SimpleNamespace(world=RealWorld(store, None), settings=SimpleNamespace(project="one"))  # type: ignore[arg-type]
    signals = Client.on(runtime).subscribe("s", ["a:b"])  # type: ignore[arg-type]
    await anext(signals)
    await cast(AsyncGenerator[Signal, None], signals).aclose()
    assert not store.is_leased


async def test_search_before_its_announcement_has_reached_all_processes_is_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(search_schedule, "KNOWN_SECONDS", 0.02)
    world = RealWorld(Store(), None)  # type: ignore[arg-type]
    await world.bells.learn("one")
    schedule = search_schedule.SearchSchedule(world, "one", ["a:b"])
    schedule.clear()
    async with asyncio.timeout(2):  # less than POLL_SECONDS
        await schedule.wait(None)
    schedule.clear()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await schedule.wait(None)
    schedule.close()


async def test_subscriber_announces_itself_while_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_schedule, "ANNOUNCE_SECONDS", 0.01)
    monkeypatch.setattr(search_schedule, "KNOWN_SECONDS", 0.0)
    world = RealWorld(Store(), None)  # type: ignore[arg-type]
    await world.bells.learn("one")
    announced: list[str] = []
    monkeypatch.setattr(world, "ring", lambda keys, agents=(): announced.extend(key.name for key in keys))
    schedule = search_schedule.SearchSchedule(world, "one", ["a:b"])
    schedule.clear()
    await schedule.wait(0.1)
    schedule.close()
    assert set(announced) == {"subscribers:a:b"}
    assert announced.count("subscribers:a:b") > 2
