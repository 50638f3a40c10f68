"""Commits ring for the names of their signals, in projects where somebody listens for them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import heliograph.ledger
from heliograph.adapters.base import AdapterServices
from heliograph.adapters.callback import function_subscriber
from heliograph.signals.pattern import compile_pattern
from heliograph.subscriptions.deliveries import Deliveries
from heliograph.world import bells, signal_bells
from heliograph.world.real import RealWorld
from heliograph.world.seam import ANY, SIGNALS, SUBSCRIBERS, BellKey, bell_keys
from heliograph.world.signal_bells import ENDS, KERNEL_NAMES, RESULTS, bells_of, names_of, signal_bell


class Store:
    """A kernel without signals. key: the key of the bells; by default one of the project."""

    def __init__(self, key: object = None) -> None:
        self.key = key
        self.bells: dict[str, str] = {}
        self.searches = 0

    async def call(self, function: str, project: str, *_: object) -> Any:
        self.searches += function == "take_signals"
        taken = {"outcome": "taken", "runs": [], "more": False, "due_seconds": None}
        if function == "bell_key":
            return self.key if self.key is not None else ("01" if project == "one" else "02") * 32
        if function == "subscribe":
            return {"outcome": "subscribed", "bells": self.bells}
        return taken if function == "take_signals" else []


class Wire:
    """Remembers what it would send; each entry is one NOTIFY."""

    is_up = carries_commands = True
    carries_names = has_observers = False

    def __init__(self) -> None:
        self.rung: list[list[str]] = []

    def ring(self, keys: Iterable[str], agents: Iterable[str] = ()) -> None:
        self.rung.append(list(keys))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time of the presences; a test that moves it on waits for nothing."""
    now = [0.0]
    made = signal_bells.SignalBells
    monkeypatch.setattr(
        bells, "SignalBells", lambda project, subscriptions, _: made(project, subscriptions, lambda: now[0])
    )
    return now


async def ringing(key: object = None) -> tuple[RealWorld, Wire]:
    world, wire = RealWorld(Store(key), None), Wire()  # type: ignore[arg-type]
    world.bells.wires.append(wire)  # type: ignore[arg-type]
    assert await world.bells.learn("one")
    return world, wire


async def emit(world: RealWorld, *names: str, project: str = "one") -> None:
    await world.call("append", project, [{"signals": [{"name": name} for name in names]}])


def tokens(world: RealWorld, *names: str) -> list[str]:
    return [world.bells.tokens.of(key) for key in bell_keys("one", names)]


async def test_commit_rings_the_bells_of_its_names_that_are_announced_and_no_others(clock: list[float]) -> None:
    world, wire = await ringing()
    await emit(world, "a:b")
    # a new process does not know who listens
    assert wire.rung == [tokens(world, *(f"{SIGNALS}{bell}" for bell in ("a:b", "a:*", "*:a", "*:b", "*:*", "**")))]
    clock[0] += 7
    await emit(world, "a:b")
    assert len(wire.rung) == 1
    for bell in (ANY, "order:placed", "refund:*"):
        world.bells.subscriptions.ring_from_wire(tokens(world, f"{SUBSCRIBERS}{bell}"))
    await emit(world, "order:placed")
    bells = [bell for bell in bells_of("order:placed") if bell not in ("*:*", "**")]  # of a new name
    assert wire.rung[1:] == [tokens(world, *(f"{SIGNALS}{bell}" for bell in bells))]
    clock[0] += 7
    for bell in (ANY, "order:placed", "refund:*"):
        world.bells.subscriptions.ring_from_wire(tokens(world, f"{SUBSCRIBERS}{bell}"))
    del wire.rung[:]
    await emit(world, "order:placed", "order:placed")
    assert wire.rung == [tokens(world, f"{SIGNALS}order:placed")]
    clock[0] += signal_bells.PRESENCE_SECONDS + 1
    await emit(world, "order:placed")
    assert len(wire.rung) == 1


async def test_ring_of_one_project_reaches_no_other() -> None:
    world, wire = await ringing()
    assert await world.bells.learn("two")
    await emit(world, "a:b", project="two")
    bells = [f"{SIGNALS}{bell}" for bell in bells_of("a:b")]
    assert wire.rung == [[world.bells.tokens.of(BellKey("two", name)) for name in bells]]
    assert not {*wire.rung[0]} & {*tokens(world, *bells)}


async def test_login_that_may_only_subscribe_uses_the_tokens_that_subscribe_has_returned() -> None:
    world, wire = await ringing({})
    world.bells._store.bells = {f"{SIGNALS}order:placed": "a" * 32, f"{SUBSCRIBERS}order:placed": "b" * 32}  # type: ignore[attr-defined]
    subscription = world.subscribe(bell_keys("one", [f"{SIGNALS}order:placed", f"{SIGNALS}x:y"]))
    await world.call("subscribe", "one", "s", ["order:placed"], "now", {})
    world.ring(bell_keys("one", [f"{SUBSCRIBERS}x:y", f"{SUBSCRIBERS}order:placed"]))
    assert wire.rung == [["b" * 32]]
    subscription.clear()
    world.bells.subscriptions.ring_from_wire(["a" * 32])
    assert await subscription.wait(0)
    subscription.close()


async def test_subscriber_of_a_rare_name_does_not_search_after_other_signals(clock: list[float]) -> None:
    store = Store()
    world = RealWorld(store, None)  # type: ignore[arg-type]
    assert await world.bells.learn("one")
    await emit(world, "text:delta")
    clock[0] += 7
    received = function_subscriber(
        "s", ["order:lost", "refund:**", "**:failed", "*:*:*:*"], lambda signal: None, "now", 60.0, 5
    )
    deliveries = Deliveries(AdapterServices(world, "one"), received)
    task = asyncio.create_task(deliveries.run())
    await asyncio.sleep(0.01)
    assert store.searches == 1
    for number in range(1000):
        await emit(world, "text:delta", f"order:{number}")
    clock[0] += 7  # these names are not new any more
    for count in range(2, 20):  # more than a burst
        for name in ("text:delta", "order:5"):
            await emit(world, name)
        await emit(world, ("order:lost", "refund:1:2", "parcel:failed", "a:b:c:d")[count % 4])
        for _ in range(10):
            await asyncio.sleep(0)
        deliveries._schedule.found()  # as after a search that finds the signal
        assert store.searches == count
    deliveries.drain()
    await task


async def test_subscriber_of_a_rare_name_does_not_search_after_other_signals_of_a_new_process() -> None:
    store = Store()
    world = RealWorld(store, None)  # type: ignore[arg-type]
    assert await world.bells.learn("one")
    deliveries = Deliveries(
        AdapterServices(world, "one"), function_subscriber("s", ["order:lost"], lambda signal: None, "now", 60.0, 5)
    )
    task = asyncio.create_task(deliveries.run())
    await asyncio.sleep(0.01)
    for number in range(20):
        await emit(world, "text:delta", f"order:{number}")
        await asyncio.sleep(0)
    assert store.searches == 1
    await emit(world, "order:lost")
    for _ in range(10):
        await asyncio.sleep(0)
    assert store.searches == 2
    deliveries.drain()
    await task


async def test_names_beyond_the_most_are_forgotten(monkeypatch: pytest.MonkeyPatch, clock: list[float]) -> None:
    monkeypatch.setattr(signal_bells, "NAMES_MAX", 10)
    world, _ = await ringing()
    await emit(world, "a:b")
    clock[0] += 7
    world.bells.subscriptions.ring_from_wire(tokens(world, f"{SUBSCRIBERS}{ANY}"))
    for number in range(100):
        await emit(world, f"x{number}:y")
    assert len(world.bells.subscriptions._of_key) < 50


@given(st.lists(st.sampled_from(["a", "b.c", "*", "**"]), min_size=1, max_size=4), st.lists(st.sampled_from(["a", "b.c", "d"]), min_size=1, max_size=4))  # fmt: skip
def test_each_name_that_a_pattern_matches_rings_its_bell(pattern: list[str], name: list[str]) -> None:
    text, emitted = ":".join(pattern), ":".join(name)
    if pattern.count("**") <= 2 and compile_pattern(text).matches(emitted):
        assert signal_bell(text) in bells_of(emitted)


def test_pattern_that_begins_with_a_wildcard_rings_for_its_last_segment() -> None:
    assert [signal_bell(p) for p in ("*:failed", "**:failed", "*:a:*", "**:a:b:**", "order:*:failed", "**", "*:**")] == [
        "*:failed", "*:failed", "*:a", "*:b", "order:*", "**", "**",
    ]  # fmt: skip


@given(
    st.lists(st.just("*"), min_size=1, max_size=16), st.lists(st.sampled_from(["a", "b.c"]), min_size=1, max_size=16)
)
def test_pattern_of_single_wildcards_rings_for_the_names_that_it_matches_and_no_others(
    pattern: list[str], name: list[str]
) -> None:
    assert (signal_bell(":".join(pattern)) in bells_of(":".join(name))) == (len(pattern) == len(name))


def test_each_function_names_what_it_may_have_logged() -> None:
    drafts, ok = [{"signals": [{"name": "a:b"}]}, {"signals": None}, {}], [{"outcome": "ok"}]
    for function in ("append", "start_runs", "finish", "react", "record_call", "begin_call", "defer", "release"):
        assert names_of(function, ("one", drafts), ok) == {"a:b"}
    assert names_of("finish", ("one", [{"signals": [], "reaction": {"stops": {"turns": "all"}}}]), ok) == ENDS
    assert names_of("release", ("one", [{"failure": {"code": "X"}}]), ok) == ENDS
    assert names_of("defer", ("one", drafts), [{"outcome": "exhausted"}]) == {"a:b", *ENDS}
    assert names_of("suspend", ("one", drafts), [*ok, {"outcome": "stopped"}]) == {"a:b", *KERNEL_NAMES}
    assert names_of("begin_call", ("one", [{}]), [{"outcome": "in_doubt"}]) == RESULTS
    assert names_of("report", ("one", [{}]), [{"outcome": "applied"}]) == RESULTS
    assert names_of("enqueue", ("one", [{"name": "c:d"}]), [{"outcome": "queued"}]) == {"c:d", "agent:activated"}
    assert names_of("fail_unclaimable", ("one", ["app"]), {"turn_id": "turn_1"}) == ENDS
    assert names_of("fail_unclaimable", ("one", ["app"]), {}) == set()
    assert names_of("sweep_waits", ("one", 100), {"resolved": [], "targets": ["app"], "after": 7}) == set()
    assert names_of("sweep_waits", ("one", 100), {"resolved": ["turn_1"], "failed": []}) == RESULTS
    assert names_of("sweep_leases", ("one", 100), {"recovered": ["turn_1"], "ended": ["turn_2"]}) == ENDS


def test_names_that_the_kernel_logs_itself_are_listed() -> None:
    """These functions write entries of the log that their caller has not sent."""
    folder = Path(heliograph.ledger.__file__).parent / "sql" / "kernel"
    found: set[str] = set()
    for name in ("50_endings", "52_stop", "64_resolve"):
        text = (folder / f"{name}.sql").read_text(encoding="utf-8")
        for entry in re.findall(r"'name', (case [^,]+ end|'[a-z:_]+'),\s+'(?:agent|parent)'", text):
            found |= set(re.findall(r"'([a-z:_]+)'", entry))
    assert found == KERNEL_NAMES
