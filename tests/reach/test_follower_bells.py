"""A commit rings for followers of a log in other processes only where one has announced itself."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

import pytest

from heliograph import Context, Heliograph, run_follower
from heliograph.config import Settings
from heliograph.errors import Rejected
from heliograph.runtime import open_runtime
from heliograph.testing.conformance import eventually
from heliograph.world import bells as bells_module
from heliograph.world import follower_bells
from heliograph.world.bells import Bells
from heliograph.world.follower_bells import ANNOUNCEMENT, FollowerBells
from heliograph.world.seam import BellKey
from heliograph.world.signal_bells import PRESENCE_SECONDS
from tests.reach.serving import NEVER_SECONDS, serving

LOG, WORK, FOLLOWERS = (BellKey("default", name) for name in ("log:run_1", "work:newsroom", ANNOUNCEMENT))
KEY = "00" * 32


class Wire:
    carries_names, carries_commands, has_observers = False, False, False

    def __init__(self, *, is_up: bool = True) -> None:
        self.is_up = is_up
        self.rung: list[str] = []
        self.has_rung = asyncio.Event()

    def ring(self, keys: Iterable[str], _agents: Iterable[str] = ()) -> None:
        self.rung += keys
        self.has_rung.set()


class Process:
    """The bells of a process that started long ago, with a wire. key: of its project; None if its login has no access to it."""

    def __init__(self, key: str | None = KEY, *, is_known: bool = True) -> None:
        self.tasks: list[asyncio.Task[None]] = []
        self.key = key
        self.bells = Bells(self, self._spawn)
        if is_known:
            self.bells.tokens.add("default", KEY)
        self.wire = Wire()
        self.bells.wires = [self.wire]  # type: ignore[list-item]

    async def call(self, _function: str, *_args: object) -> Any:
        if self.key is None:
            raise Rejected("no access", code="access_denied")
        return self.key

    def _spawn(self, _name: str, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.create_task(work))

    def tokens(self, *keys: BellKey) -> list[str]:
        return [self.bells.tokens.of(key) for key in keys]

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


@pytest.fixture(autouse=True)
def long_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower_bells, "UNKNOWN_SECONDS", 0.0)


async def test_log_rings_on_the_wire_only_after_an_announcement_of_followers() -> None:
    process = Process()
    process.bells.ring([LOG, WORK])
    assert process.wire.rung == process.tokens(WORK)
    process.bells.subscriptions.ring_from_wire(process.tokens(FOLLOWERS))
    process.bells.ring([LOG])
    assert process.wire.rung == process.tokens(WORK, LOG)


async def test_log_rings_until_three_announcements_were_lost_and_for_its_own_project_alone() -> None:
    now, process = [0.0], Process()
    followers = FollowerBells(process.bells.subscriptions, lambda: now[0])
    assert followers.to_send([LOG, WORK]) == [WORK]
    process.bells.subscriptions.ring_from_wire(process.tokens(FOLLOWERS))
    now[0] = PRESENCE_SECONDS - 0.1
    assert followers.to_send([LOG, BellKey("other", "log:run_1")]) == [LOG]
    now[0] = PRESENCE_SECONDS
    assert followers.to_send([LOG]) == []


async def test_process_that_has_just_started_rings_for_followers_it_cannot_know(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(follower_bells, "UNKNOWN_SECONDS", 60.0)
    process = Process()
    process.bells.ring([LOG])
    assert process.wire.rung == process.tokens(LOG)


async def test_log_rings_while_a_wire_is_down_that_may_have_lost_announcements() -> None:
    process = Process()
    process.bells.wires = [Wire(is_up=False), process.wire]  # type: ignore[list-item]
    process.bells.ring([LOG])
    assert process.wire.rung == process.tokens(LOG)


async def test_follower_announces_itself_and_looks_once_more_for_commits_before_the_announcement_arrived() -> None:
    process = Process()
    subscription = process.bells.subscribe([LOG])
    assert await subscription.wait(1.0)
    assert process.wire.rung == process.tokens(FOLLOWERS)
    process.bells.subscribe([BellKey("default", "log:run_2")])
    assert len(process.tasks) == 1  # one announces for all followers of the process
    await process.close()


async def test_process_rings_on_no_wire_for_its_own_followers() -> None:
    process = Process()
    subscription = process.bells.subscribe([LOG])
    await process.wire.has_rung.wait()
    subscription.clear()
    process.bells.ring([LOG])
    assert await subscription.wait(0.0)
    assert process.wire.rung == process.tokens(FOLLOWERS)
    await process.close()


async def test_announcements_end_with_the_last_follower_and_begin_with_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bells_module, "ANNOUNCE_SECONDS", 0.0)
    process = Process()
    subscription = process.bells.subscribe([LOG])
    await eventually(lambda: len(process.wire.rung) > 2)
    subscription.close()
    await process.tasks[0]
    assert set(process.wire.rung) == set(process.tokens(FOLLOWERS))
    process.wire.has_rung.clear()
    process.bells.subscribe([LOG])
    await process.wire.has_rung.wait()
    await process.close()


async def test_follower_announces_itself_again_once_a_lost_wire_is_back() -> None:
    process = Process()
    process.wire.is_up = False
    subscription = process.bells.subscribe([LOG])
    assert await subscription.wait(1.0)
    assert process.wire.rung == []
    process.wire.is_up = True
    process.bells.subscriptions.ring_from_wire(["*"])
    subscription.clear()
    assert await subscription.wait(1.0)  # commits between the ring and the announcement have not rung
    assert process.wire.rung == process.tokens(FOLLOWERS)
    await process.close()


async def test_follower_announces_itself_once_its_process_has_the_key_of_the_project() -> None:
    process = Process(is_known=False)
    process.bells.subscribe([LOG])
    await process.wire.has_rung.wait()
    assert process.wire.rung == process.tokens(FOLLOWERS)
    await process.close()


async def test_login_without_the_key_of_the_project_follows_without_an_announcement() -> None:
    process = Process(None, is_known=False)
    subscription = process.bells.subscribe([LOG])
    assert await subscription.wait(1.0)
    assert process.wire.rung == []
    assert not any(task.done() for task in process.tasks)
    await process.close()


async def test_follower_of_a_run_in_another_process_waits_for_no_poll(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_follower, "POLL_SECONDS", NEVER_SECONDS)
    monkeypatch.setattr(bells_module, "SETTLED_SECONDS", NEVER_SECONDS)
    app, goes_on = Heliograph("followed"), asyncio.Event()

    @app.agent(activate_on=["workflow:start"])
    async def waits(_: Context) -> None:
        await goes_on.wait()

    settings = Settings(database_url)
    async with open_runtime(settings) as client, open_runtime(settings) as elsewhere, asyncio.timeout(60):
        followers = elsewhere.world.bells._followers
        assert not followers._is_present(settings.project)
        async with serving(elsewhere, app, sweeps=False):
            running = asyncio.create_task(client.run(app.workflow, {}, worker=False))
            await eventually(lambda: followers._is_present(settings.project))
            goes_on.set()
            assert (await running).outcome == "success"
