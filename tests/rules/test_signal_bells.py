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
from heliograph.world.bell_tokens import Tokens
from heliograph.world.pattern_listeners import PatternListeners
from heliograph.world.real import RealWorld
from heliograph.world.seam import SIGNALS, SUBSCRIBERS, BellKey, bell_keys
from heliograph.world.signal_bells import ENDS, KERNEL_NAMES, RESULTS, names_of
from heliograph.world.subscriptions import Subscriptions


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
        bells, "SignalBells", lambda project, found, tokens, _: made(project, found, tokens, lambda: now[0])
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


@pytest.mark.proves("S25")
async def test_commit_rings_for_the_names_that_an_announced_pattern_matches_and_no_others(clock: list[float]) -> None:
    world, wire = await ringing()
    await emit(world, "a:b")
    assert wire.rung == [tokens(world, f"{SIGNALS}a:b")]  # a new process does not know who listens
    clock[0] += 7
    await emit(world, "a:b")
    assert len(wire.rung) == 1
    for pattern in ("order:*:failed", "refund:**:late"):
        world.bells.subscriptions.ring_from_wire(tokens(world, f"{SUBSCRIBERS}{pattern}"))
    del wire.rung[:]
    await emit(
        world,
        "a:b",
        "order:1:placed",
        "order:1:failed",
        "order:failed",
        "refund:1:2:late",
        "refund:1",
        "order:1:failed",
    )
    assert wire.rung == [tokens(world, f"{SIGNALS}order:1:failed", f"{SIGNALS}refund:1:2:late")]
    clock[0] += signal_bells.PRESENCE_SECONDS + 1
    await emit(world, "order:1:failed")
    assert len(wire.rung) == 1


@pytest.mark.proves("S25")
async def test_ring_of_one_project_reaches_no_other() -> None:
    world, wire = await ringing()
    assert await world.bells.learn("two")
    await emit(world, "a:b", project="two")
    assert wire.rung == [[world.bells.tokens.of(BellKey("two", f"{SIGNALS}a:b"))]]
    shared = {*wire.rung[0][0].split(":")} & {*tokens(world, f"{SIGNALS}a:b")[0].split(":")}
    assert not shared


async def test_login_that_may_only_subscribe_uses_the_tokens_that_subscribe_has_returned() -> None:
    world, wire = await ringing({})
    own = {f"{SIGNALS}order:*": "a:1:*", f"{SUBSCRIBERS}order:*": "b:1:*"}
    world.bells._store.bells = own  # type: ignore[attr-defined]
    subscription = world.subscribe(bell_keys("one", [f"{SIGNALS}order:*", f"{SIGNALS}x:y"]))
    await world.call("subscribe", "one", "s", ["order:*"], "now", {})
    world.ring(bell_keys("one", [f"{SUBSCRIBERS}x:y", f"{SUBSCRIBERS}order:*"]))
    assert wire.rung == [["b:1:*"]]
    subscription.clear()
    world.bells.subscriptions.ring_from_wire(["a:2:3", "b:1:2", "a:1", "x:1:2"])
    assert not await subscription.wait(0)
    world.bells.subscriptions.ring_from_wire(["a:1:2"])
    assert await subscription.wait(0)
    subscription.close()


async def test_subscriber_of_a_rare_name_does_not_search_after_other_signals(clock: list[float]) -> None:
    store = Store()
    world = RealWorld(store, None)  # type: ignore[arg-type]
    assert await world.bells.learn("one")
    await emit(world, "text:delta")
    clock[0] += 7
    patterns = ["order:lost", "refund:**", "**:failed", "*:*:*:*", "order:*:late", "order:**:part:*"]
    received = function_subscriber("s", patterns, lambda signal: None, "now", 60.0, 5)
    deliveries = Deliveries(AdapterServices(world, "one"), received)
    task = asyncio.create_task(deliveries.run())
    await asyncio.sleep(0.01)
    assert store.searches == 1
    for number in range(1000):
        await emit(world, "text:delta", f"order:{number}")
    for count in range(2, 20):  # more than a burst
        for name in ("text:delta", "order:5", "order:5:placed", "late:5:order", "order:5:part"):
            await emit(world, name)
        matching = ("order:lost", "refund:1:2", "parcel:failed", "a:b:c:d", "order:5:late", "order:part:5")
        await emit(world, matching[count % 6])
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


async def test_announcements_beyond_the_most_lead_to_rings_for_all_names(
    monkeypatch: pytest.MonkeyPatch, clock: list[float]
) -> None:
    monkeypatch.setattr(signal_bells, "PATTERNS_MAX", 150)
    world, wire = await ringing()
    await emit(world, "a:b")
    for number in range(100):
        world.bells.subscriptions.ring_from_wire(tokens(world, f"{SUBSCRIBERS}x{number}:y"))
    clock[0] += signal_bells.PRESENCE_SECONDS + 1  # the first are absent, and are forgotten
    for number in range(200):
        world.bells.subscriptions.ring_from_wire(tokens(world, f"{SUBSCRIBERS}z{number}:y"))
    assert len(world.bells._signals["one"]._until) == 150
    del wire.rung[:]
    await emit(world, "c:d")
    assert wire.rung == [tokens(world, f"{SIGNALS}c:d")]


async def test_forged_announcements_and_rings_have_no_effect(clock: list[float]) -> None:
    world, wire = await ringing()
    await emit(world, "a:b")
    kinds = [tokens(world, f"{kind}a")[0].partition(":")[0] for kind in (SIGNALS, SUBSCRIBERS)]
    forged = ["", "::", "*a", "a b", "**:**:**:**", "a" * 7000, ":".join("a" * 100)]
    world.bells.subscriptions.ring_from_wire([f"{kind}:{each}" for kind in kinds for each in forged])
    clock[0] += 7
    del wire.rung[:]
    await emit(world, "a:b")
    assert wire.rung == []


async def test_announcements_count_as_missed_while_no_key_or_no_wire_was_there(clock: list[float]) -> None:
    world, wire = await ringing()
    await emit(world, "a:b")
    clock[0] += 7
    for is_key in (True, False):
        del wire.rung[:]
        if is_key:
            world.bells.subscriptions.learned("one")
        else:
            world.bells.subscriptions.ring_from_wire(["*"])
        await emit(world, "a:b")
        assert wire.rung == [tokens(world, f"{SIGNALS}a:b")]
        clock[0] += signal_bells.PRESENCE_SECONDS
        await emit(world, "a:b")
        assert len(wire.rung) == 1


class Rung:
    """A listener that counts its rings: from this process, and from a wire."""

    def __init__(self, *patterns: str) -> None:
        self.keys = tuple(bell_keys("one", [f"{SIGNALS}{pattern}" for pattern in patterns]))
        self.here = self.wire = 0

    def ring(self) -> None:
        self.here += 1

    def ring_from_wire(self) -> None:
        self.wire += 1


@pytest.mark.proves("S25")
@given(st.lists(st.sampled_from(["a", "b.c", "*", "**"]), min_size=1, max_size=4), st.lists(st.sampled_from(["a", "b.c", "d"]), min_size=1, max_size=4))  # fmt: skip
def test_name_rings_a_pattern_here_and_over_a_wire_exactly_if_the_pattern_matches_it(
    pattern: list[str], name: list[str]
) -> None:
    text, emitted = ":".join(pattern), ":".join(name)
    if pattern.count("**") > 2:
        return
    known = Tokens()
    known.add("one", "01" * 32)
    subscriptions, listener = Subscriptions(known), Rung(text)
    subscriptions.add(listener)
    key = BellKey("one", f"{SIGNALS}{emitted}")
    subscriptions.ring([key])
    subscriptions.ring_from_wire([known.of(key)])
    expected = compile_pattern(text).matches(emitted)
    assert (listener.here, listener.wire) == (expected, expected)


def test_subscriber_that_ends_is_rung_by_its_own_pattern() -> None:
    """So the other subscribers of the name look for the signals that it has not processed."""
    subscriptions = Subscriptions(Tokens())
    for pattern in ("order:*", "**", "a:**:b:*"):
        listener = Rung(pattern)
        subscriptions.add(listener)
        subscriptions.ring(listener.keys)
        assert listener.here == 1
        subscriptions.forget(listener)


def test_listener_that_comes_and_goes_is_rung_while_it_is_there() -> None:
    known = Tokens()
    known.add("one", "01" * 32)
    subscriptions, stays = Subscriptions(known), Rung("order:*")
    subscriptions.add(stays)
    for number in range(500):
        passing = Rung(f"order:{number}", "order:*")
        subscriptions.add(passing)
        subscriptions.ring_from_wire([known.of(BellKey("one", f"{SIGNALS}order:{number}"))])
        subscriptions.forget(passing)
        subscriptions.ring([BellKey("one", f"{SIGNALS}order:{number}")])
        assert (passing.wire, passing.here) == (2, 0)
    assert (stays.wire, stays.here) == (500, 500)
    assert len(subscriptions.of_signals("one")._of_pattern) < 250
    assert subscriptions.of_signals("one")
    subscriptions.forget(stays)
    assert not subscriptions.of_signals("one")


def test_longest_name_has_a_masked_name_of_the_allowed_length() -> None:
    known = Tokens()
    known.add("one", "01" * 32)
    listeners, listener = PatternListeners("one", known), Rung()
    listeners.add(":".join("a" * 16), listener)
    listeners.ring_from_wire(known.of(BellKey("one", f"{SIGNALS}{':'.join('a' * 16)}")).partition(":")[2])
    assert listener.wire == 1


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
