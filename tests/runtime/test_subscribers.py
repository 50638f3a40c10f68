"""Subscribers of an application and programs that iterate: order, sharing, failures, and runs that nothing delays."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Iterable
from typing import Any

import pydantic
import pytest

from heliograph import Client, Context, Heliograph, Signal, define_signal
from heliograph.adapters.base import AdapterServices
from heliograph.adapters.callback import function_subscriber
from heliograph.errors import Conflict, NotFound
from heliograph.ledger.signal_feed import SignalFeed
from heliograph.subscriptions import deliveries, serving
from heliograph.subscriptions.deliveries import Deliveries
from heliograph.world import cancellation
from heliograph.world.real import RealWorld
from heliograph.world.seam import BellKey
from tests.runtime.kit import SOON_SECONDS, START, Rig, until

CANARY = "canary-90e2"


class Order(pydantic.BaseModel):
    number: int


PLACED = define_signal("order:placed", Order)


def shop(count: int = 3) -> Heliograph:
    app = Heliograph("shop")

    @app.agent(activate_on=START, emits=[PLACED])
    def clerk(ctx: Context) -> None:
        for number in range(count):
            ctx.emit(PLACED, Order(number=number))

    return app


async def read(client: Client, name: str, count: int, *patterns: Any, **options: Any) -> list[Signal[Any]]:
    found: list[Signal[Any]] = []
    async with asyncio.timeout(SOON_SECONDS):
        signals = client.subscribe(name, list(patterns) or ["**"], **options)
        async for signal in signals:
            found.append(signal)
            if len(found) == count:
                break
        await signals.aclose()
    return found


@pytest.mark.more  # it waits
async def test_handlers_receive_models_in_order_and_raising_or_hanging_ones_delay_no_run_and_no_other(
    rig: Rig, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "CLOSE_SECONDS", 1.0)
    app, orders, plain = shop(), list[int](), list[str]()

    @app.on_signal(PLACED, since="start")
    async def audit(signal: Signal[Order]) -> None:
        orders.append(signal.payload.number)

    @app.on_signal("workflow:*", name="plain")
    def note(signal: Signal) -> None:
        plain.append(signal.name)

    @app.on_signal("order:*", name="raising", max_attempts=1)
    def fail(signal: Signal) -> None:
        raise RuntimeError(CANARY)

    @app.on_signal("order:*", name="hanging", timeout_seconds=3600)
    async def hang(signal: Signal) -> None:
        await asyncio.Event().wait()

    with caplog.at_level(logging.INFO, "heliograph"):
        result = await rig.run(app)
    assert result.outcome == "success"
    assert orders == [0, 1, 2]
    assert plain == ["workflow:start", "workflow:end"]
    assert caplog.text.count("subscription raising skips sig_") == 3
    assert CANARY not in caplog.text
    behind = {row.name: row.behind for row in await rig.client.subscriptions()}
    assert behind["shop.audit"] == behind["plain"] == behind["raising"] == 0
    assert behind["hanging"] > 0


async def test_handler_that_ignores_its_cancellation_does_not_keep_app_run_from_returning(
    rig: Rig, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "CLOSE_SECONDS", 0.0)
    monkeypatch.setattr(deliveries, "_CLEANUP_SECONDS", 0.001)
    app, release, has_begun = shop(1), asyncio.Event(), asyncio.Event()

    @app.on_signal(PLACED, name="stubborn", since="start")
    async def stubborn(signal: Signal[Order]) -> None:
        while not release.is_set():
            has_begun.set()
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    @app.agent(activate_on=[PLACED])
    async def waits(ctx: Context) -> None:
        await has_begun.wait()

    async with asyncio.timeout(SOON_SECONDS):
        assert (await rig.run(app)).outcome == "success"
    assert "ignored their cancellation, and are abandoned: subscription stubborn" in caplog.text
    release.set()


async def test_handler_that_cancels_its_own_task_counts_as_failed(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    app, calls = shop(2), list[int]()

    @app.on_signal(PLACED, name="cancelling", max_attempts=1, since="start")
    async def cancels_itself(signal: Signal[Order]) -> None:
        calls.append(signal.payload.number)
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    async with asyncio.timeout(SOON_SECONDS):
        assert (await rig.run(app)).outcome == "success"
    assert calls == [0, 1]
    assert caplog.text.count("after 1 attempt: it cancelled its own task") == 2


class Counted:
    """Counts what a process does in its world: calls of the kernel, and rings by the kind of their bell."""

    def __init__(self, world: RealWorld, monkeypatch: pytest.MonkeyPatch):
        self.found: Counter[str] = Counter()
        call, ring = world.call, world.ring

        async def counted_call(function: str, *arguments: object) -> Any:
            self.found[function] += 1
            return await call(function, *arguments)

        def counted_ring(keys: Iterable[BellKey], agents: Iterable[str] = ()) -> None:
            keys = list(keys)
            self.found.update(f"rings {key.name.partition(':')[0]}" for key in keys)
            ring(keys, agents)

        monkeypatch.setattr(world, "call", counted_call)
        monkeypatch.setattr(world, "ring", counted_ring)

    async def of(self, work: Awaitable[object]) -> dict[str, int]:
        """Return what the work does, without the loops of the worker, which depend on time."""
        self.found.clear()
        await work
        loops = ("sweep", "read_outbox", "mark_published", "claim", "beat", "deregister", "rings slot", "bell_key")
        return {name: count for name, count in self.found.items() if not name.startswith(loops)}


@pytest.mark.more  # it starts seven runs
async def test_turn_costs_no_call_and_no_ring_more_beside_subscribers_that_hang(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "RUNS_MAX", 1)
    monkeypatch.setattr(serving, "CLOSE_SECONDS", 0.0)
    counted, app, hanging, begun = Counted(rig.runtime.world, monkeypatch), shop(), shop(), list[str]()

    async def hang(signal: Signal) -> None:
        begun.append(signal.name)
        await asyncio.Event().wait()

    for number in range(100):
        hanging.on_signal("**", name=f"hanging-{number}", since="start", timeout_seconds=3600)(hang)
    await rig.run(app)
    alone = [await counted.of(rig.run(app)) for _ in range(3)]
    async with rig.runtime.serving_subscribers([hanging.workflow]):

        async def all_hang() -> bool:
            return len(begun) == 100

        await until(all_hang)
        beside = [await counted.of(rig.run(app)) for _ in range(3)]
    assert alone[0]["finish"] == alone[0]["start_runs"] == 1
    assert beside == alone


@pytest.mark.more  # it waits
async def test_leases_of_all_subscribers_of_a_process_are_renewed_by_one_call(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "CLOSE_SECONDS", 0.0)
    monkeypatch.setattr(serving, "LEASE_SECONDS", 0.6)
    counted, app, begun = Counted(rig.runtime.world, monkeypatch), shop(), list[str]()

    async def hang(signal: Signal) -> None:
        begun.append(signal.id)
        await asyncio.Event().wait()

    for number in range(10):
        app.on_signal("**", name=f"hanging-{number}", since="start", timeout_seconds=3600)(hang)
    for _ in range(3):
        await rig.run(shop())
    async with rig.runtime.serving_subscribers([app.workflow]):

        async def all_hang() -> bool:
            return len(begun) == 30

        await until(all_hang)
        found = await counted.of(asyncio.sleep(1.3))
    assert len(begun) == 30  # no lease was lost
    assert 4 <= found["record_positions"] <= 7


@pytest.mark.more  # it waits
async def test_failed_signal_is_delivered_again_before_those_that_follow(rig: Rig) -> None:
    seen: list[int] = []

    async def once(signal: Signal[Order]) -> None:
        seen.append(signal.payload.number)
        if seen == [0, 1]:
            raise RuntimeError("once")

    subscriber = function_subscriber("s", [PLACED], once, "start", 60.0, 5)
    made = Deliveries(AdapterServices(rig.runtime.world, rig.runtime.settings.project), subscriber)
    await made.subscribe()
    await rig.run(shop())
    task = asyncio.create_task(made.run())

    async def is_read() -> bool:
        return len(seen) == 4

    await until(is_read)
    made.drain()
    await task
    assert seen == [0, 1, 1, 2]


@pytest.mark.more  # it waits
async def test_plain_function_that_hangs_on_one_signal_costs_no_attempt_of_another(rig: Rig) -> None:
    seen: list[tuple[str, int]] = []
    release = threading.Event()

    def hang_once(signal: Signal[Order]) -> None:
        seen.append((signal.run_id, signal.payload.number))
        if len(seen) == 1:
            release.wait(SOON_SECONDS)

    subscriber = function_subscriber("s", [PLACED], hang_once, "start", 0.3, 1)
    made = Deliveries(AdapterServices(rig.runtime.world, rig.runtime.settings.project), subscriber)
    await made.subscribe()
    runs = [(await rig.run(shop())).run_id for _ in range(2)]
    made.drain()
    await made.run()
    release.set()
    assert sorted(seen) == sorted((run_id, number) for run_id in runs for number in range(3))


@pytest.mark.more  # it waits
async def test_iterator_that_lost_its_lease_records_nothing(rig: Rig) -> None:
    feed = SignalFeed(rig.runtime.world, rig.runtime.settings.project)
    await feed.subscribe("s", ["order:placed"], "start", {})
    await rig.run(shop())
    first = rig.client.subscribe("s", [PLACED], lease_seconds=0.3)
    assert (await anext(first)).payload.number == 0
    time.sleep(0.5)  # noqa: ASYNC251  a process that is frozen for longer than its lease
    [taken], _, _ = await feed.take("s", "another", 1, 60.0)
    assert [signal.payload for signal in taken.signals] == [{"number": n} for n in range(3)]
    await asyncio.sleep(0.3)  # its renewal finds that the run is lost
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await anext(first)
    item = {"name": "s", "subscriber": "another", "run_id": taken.run_id, "position": taken.upto}
    assert [each.outcome for each in await feed.record([item])] == ["ok"]


async def test_iterators_of_one_name_share_the_runs_and_a_signal_in_progress_is_delivered_again(rig: Rig) -> None:
    with pytest.raises(NotFound, match="no run run_x"):
        await read(rig.client, "s", 1, after={"run_x": 0})
    runs = [await rig.run(shop()) for _ in range(2)]
    first = await read(rig.client, "s", 2, PLACED, since="start")
    assert [signal.payload for signal in first] == [Order(number=0), Order(number=1)]
    rest = await read(rig.client, "s", 5, PLACED)
    by_run = {run.run_id: [s.payload.number for s in rest if s.run_id == run.run_id] for run in runs}
    assert sorted(by_run.values()) == [[0, 1, 2], [1, 2]]
    with pytest.raises(Conflict, match="exists with other patterns"):
        await read(rig.client, "s", 1, "order:other")
    await rig.client.unsubscribe("s")
    with pytest.raises(NotFound, match="helio signal subscriptions lists them"):
        await rig.client.unsubscribe("s")


async def test_end_of_a_program_waits_until_its_subscribers_have_released_their_runs(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the database answers later than a handler is cancelled again."""
    monkeypatch.setattr(serving, "CLOSE_SECONDS", 0.0)
    monkeypatch.setattr(deliveries, "_CLEANUP_SECONDS", 0.001)
    record = SignalFeed.record

    async def late(self: SignalFeed, items: Any) -> Any:
        await asyncio.sleep(0.05)
        return await record(self, items)

    monkeypatch.setattr(SignalFeed, "record", late)
    app, has_begun = shop(1), asyncio.Event()

    @app.on_signal(PLACED, name="endless", since="start")
    async def endless(signal: Signal[Order]) -> None:
        has_begun.set()
        await asyncio.Event().wait()

    @app.agent(activate_on=[PLACED])
    async def waits(ctx: Context) -> None:
        await has_begun.wait()

    async with asyncio.timeout(SOON_SECONDS):
        assert (await rig.run(app)).outcome == "success"
    assert (
        await rig.fetch(
            "select run_id from heliograph.subscription_runs where name = 'endless' and subscriber is not null"
        )
        == []
    )


async def test_handler_that_cleans_up_for_longer_than_a_library_is_not_cancelled_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "CLOSE_SECONDS", 0.0)
    monkeypatch.setattr(cancellation, "_CANCEL_SECONDS", 0.001)  # for what awaits no function of an application
    app, has_begun, cleaned = shop(1), asyncio.Event(), list[str]()

    @app.on_signal(PLACED, name="cleans", since="start")
    async def cleans(signal: Signal[Order]) -> None:
        has_begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)
            cleaned.append(signal.name)

    @app.agent(activate_on=[PLACED])
    async def waits(ctx: Context) -> None:
        await has_begun.wait()

    async with asyncio.timeout(SOON_SECONDS):
        assert (await rig.run(app)).outcome == "success"
    assert cleaned == ["order:placed"]
