"""Bells: tokens reveal no names, and any number of rings from a wire leads to few looks for work."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from heliograph.outbox_records import Event
from heliograph.world import subscriptions as ears_module
from heliograph.world.bell_tokens import Tokens
from heliograph.world.ring_limit import TokenBucket
from heliograph.world.seam import BellKey
from heliograph.world.subscriptions import Subscriptions

ONE, TWO = "01" * 32, "02" * 32
WORK = BellKey("one", "work:newsroom")


def tokens(**secrets: str) -> Tokens:
    made = Tokens()
    for project, secret in secrets.items():
        made.add(project, secret)
    return made


@pytest.mark.proves("S25")
def test_token_depends_on_project_and_name_and_names_neither() -> None:
    known = tokens(one=ONE, two=TWO)
    spelled = [
        known.of(BellKey(project, name)) for project in ("one", "two") for name in ("work:newsroom", "log:run_1")
    ]
    assert len(set(spelled)) == 4
    assert all(len(each) == 32 and set(each) <= set("0123456789abcdef") for each in spelled)
    assert known.of(WORK) == tokens(one=ONE).of(WORK)


@pytest.mark.proves("S25")
def test_opaque_event_keeps_nothing_of_the_event_but_a_token_of_its_key() -> None:
    event = Event(7, "evt:turn_1", "evt.agent.run_1/writer.task", {"agent_turn_id": "turn_1"})
    opaque = tokens(one=ONE).opaque("one", event)
    assert (opaque.outbox_id, opaque.subject, opaque.body) == (0, "heliograph.event", {})
    assert opaque.key == tokens(one=ONE).of(BellKey("one", "event:evt:turn_1"))


@pytest.mark.proves("S25", "S6")
def test_pace_passes_a_burst_and_then_one_ring_in_each_doubling_interval_up_to_its_bound() -> None:
    pace, passed = TokenBucket(0.05, 0.5, 10), list[float]()
    until = 0.0
    for n in range(60_000):  # ten seconds of forged rings
        now = 100.0 + n / 6000
        if now < until:  # a ring waits already
            continue
        until = now + pace.take(now)
        passed.append(until)
    gaps = [b - a for a, b in itertools.pairwise(passed)]
    assert gaps[:9] == pytest.approx([1 / 6000] * 9)
    assert gaps[9:14] == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.5], abs=0.002)
    assert min(gaps[14:]) >= 0.499
    assert len(passed) <= 10 + 4 + 20


def test_ring_that_led_to_work_takes_nothing_from_the_burst_and_ends_the_doubling() -> None:
    pace = TokenBucket(3600, 7200, 2)
    for _ in range(1000):
        assert pace.take(1.0) == 0
        pace.refund()
    assert [pace.take(1.0) for _ in range(2)] == [0, 0]
    assert pace.take(1.0) == 3600
    pace.refund()
    assert pace.take(1.0) == 0
    assert pace.take(1.0) == 3600


def test_idle_pace_allows_a_burst_again() -> None:
    pace = TokenBucket(1, 8, 2)
    now = 0.0
    for _ in range(10):
        now += pace.take(now)
    assert pace.take(now) == 8
    now += 8 + 2 * 8
    assert [pace.take(now) for _ in range(3)] == [0, 0, 1]


def test_wait_after_a_burst_shrinks_with_the_time_since_the_last_ring() -> None:
    pace = TokenBucket(1, 8, 1)
    assert (pace.take(10.0), pace.take(10.75)) == (0, 0.25)


@pytest.mark.proves("S25", "S6")
async def test_forged_rings_wake_a_subscription_only_as_often_as_its_burst(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ears_module, "INTERVAL_SECONDS", 3600.0)
    known = tokens(one=ONE)
    subscriptions = Subscriptions(known)
    subscription, rung = subscriptions.subscribe([WORK]), 0
    for _ in range(6000):
        subscriptions.ring_from_wire([known.of(WORK)])
        rung += await subscription.wait(0)
        subscription.clear()
    assert rung == ears_module.BURST
    subscriptions.ring([WORK])  # this process's own is never held up
    assert await subscription.wait(0)
    subscription.close()


@pytest.mark.proves("S25", "S6")
async def test_name_of_a_pool_rings_on_wires_with_access_rights_only() -> None:
    subscriptions = Subscriptions(tokens(one=ONE))
    subscription = subscriptions.subscribe([WORK])
    subscriptions.ring_from_wire(["work:newsroom"])
    assert not await subscription.wait(0)
    subscriptions.ring_from_wire(["work:newsroom"], carries_names=True)
    assert await subscription.wait(0)
    subscription.close()


async def test_poll_that_finds_work_releases_a_delayed_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ears_module, "INTERVAL_SECONDS", 3600.0)
    monkeypatch.setattr(ears_module, "BURST", 1)
    known = tokens(one=ONE)
    subscriptions = Subscriptions(known)
    subscription = subscriptions.subscribe([WORK])
    for _ in range(2):
        subscription.clear()
        subscriptions.ring_from_wire([known.of(WORK)])
    assert not await subscription.wait(0)
    subscription.found()
    assert await subscription.wait(0)
    subscription.close()


@pytest.mark.proves("S25")
async def test_delayed_ring_fires_later_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ears_module, "BURST", 1)
    known = tokens(one=ONE)
    subscriptions = Subscriptions(known)
    subscription = subscriptions.subscribe([WORK])
    for _ in range(100):
        subscriptions.ring_from_wire([known.of(WORK)])
        if await subscription.wait(0):
            subscription.clear()
    async with asyncio.timeout(10):
        assert await subscription.wait(9.0)
    subscription.close()


@pytest.mark.proves("S25")
async def test_subscription_wakes_only_on_the_token_of_its_project() -> None:
    known = tokens(one=ONE, two=TWO)
    subscriptions = Subscriptions(known)
    subscription = subscriptions.subscribe([BellKey("one", "log:run_1")])
    subscriptions.ring_from_wire([known.of(BellKey("two", "log:run_1")), "log:run_1", "*", "x"])
    assert not await subscription.wait(0)
    subscriptions.ring_from_wire([known.of(BellKey("one", "log:run_1"))])
    assert await subscription.wait(0)
    subscription.clear()
    subscriptions.ring_from_wire(["*"])  # a bell's own word, where something may have been missed
    assert await subscription.wait(0)
    subscription.close()
    subscriptions.ring_from_wire([known.of(BellKey("one", "log:run_1")), "*"])


async def test_subscription_wakes_when_the_key_of_its_project_arrives() -> None:
    known = Tokens()
    subscriptions = Subscriptions(known)
    subscription = subscriptions.subscribe([WORK, BellKey("two", "log:run_1")])
    known.add("one", ONE)
    subscriptions.learned("one")
    assert await subscription.wait(0)
    subscription.clear()
    subscriptions.ring_from_wire([known.of(WORK)])
    assert await subscription.wait(0)
    subscription.close()


async def test_subscription_computes_the_token_of_its_key_once_and_keeps_nothing_after_its_close(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The hash is a large part of a short subscription, such as that of a caller that waits for a run."""
    made = tokens(one=ONE)
    computed: list[BellKey] = []
    of = made.of

    def noted(key: BellKey) -> str:
        computed.append(key)
        return of(key)

    monkeypatch.setattr(made, "of", noted)
    subscriptions = Subscriptions(made)
    first, second = subscriptions.subscribe([WORK]), subscriptions.subscribe([WORK])
    first.close()
    assert len(subscriptions._keys_on_wire) == 2  # the token, and the name of the pool
    second.close()
    assert computed == [WORK]
    assert (subscriptions._keys_on_wire, subscriptions._texts_of_key, subscriptions._of_key) == ({}, {}, {})


async def test_token_that_was_learned_later_is_forgotten_with_its_subscription() -> None:
    made = Tokens()
    subscriptions = Subscriptions(made)
    subscription = subscriptions.subscribe([WORK])
    made.add("one", ONE)
    subscriptions.learned("one")
    assert made.of(WORK) in subscriptions._keys_on_wire
    subscription.close()
    assert subscriptions._keys_on_wire == {}
