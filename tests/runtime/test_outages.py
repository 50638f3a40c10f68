"""Database outages, lost bells, and a watchdog whose sweeps are rejected."""

import asyncio
import os
import signal
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from heliograph import Context, Heliograph, Step, run_follower
from heliograph.config import Settings
from heliograph.embedded.server import EmbeddedServer, open_embedded
from heliograph.errors import KernelRejected, StoreUnavailable
from heliograph.ledger.client import Ledger
from heliograph.ledger.pool import SESSION_NAME
from heliograph.runtime import open_runtime
from heliograph.worker import claim_loop
from heliograph.world.seam import bell_keys
from tests.reach.embedded_kit import eventually, is_free, postmaster
from tests.runtime.kit import START, Rig, one, until

LINKS = 12
TERMINATE = """select pg_terminate_backend(pid) from pg_stat_activity
                where datname = current_database() and pid <> pg_backend_pid() and application_name like $1"""


def chain_of_agents(name: str = "chain", between: Any = None) -> Heliograph:
    """Agents that wake each other one after another; `between` is awaited in the middle of every turn."""
    app = Heliograph(name, reducers={"n": lambda old, new: old + new})

    async def link(_ctx: Context) -> int:
        if between is not None:
            await between()
        return 1

    for n in range(LINKS):
        woken_by = f"link:{n - 1}" if n else "workflow:start"
        app.agent(name=f"link{n}", activate_on=[woken_by], emits=[f"link:{n}"], updates="n")(link)
    return app


@pytest.mark.more
@pytest.mark.parametrize("connections", ["%", SESSION_NAME, "heliograph bell"])
async def test_run_survives_a_cut_connection_in_every_turn(lone_rig: Rig, connections: str) -> None:
    app = chain_of_agents(between=lambda: lone_rig.fetch(TERMINATE, connections))
    run_id = await lone_rig.start(app, {"n": 0})
    async with lone_rig.serving(app, lease_seconds=0.5):
        signals = await lone_rig.ended(run_id)
        await until(lone_rig.is_published)  # by then the bell has a connection again
    assert one(signals, "workflow:end")["state"] == {"n": LINKS}


def is_running(home: Path, server: int) -> bool:
    """Whether this server is still the one of `home`. The runtime may have started the next one by itself."""
    if is_free(home / "pg18.server"):
        return False
    try:
        return postmaster(home) == server
    except (OSError, ValueError, IndexError):
        return True  # between two servers


@pytest.mark.more
async def test_application_keeps_running_through_a_restart_of_its_embedded_server(tmp_path: Path) -> None:
    home, restarts = tmp_path / "home", list[Any]()

    async def restart() -> None:
        if len(restarts) < 2:
            os.kill(killed := postmaster(home), signal.SIGQUIT)  # an immediate shutdown: open transactions are lost
            await asyncio.to_thread(eventually, lambda: not is_running(home, killed))
            restarts.append(await asyncio.to_thread(open_embedded, home))

    app = chain_of_agents(between=restart)
    async with asyncio.timeout(60), open_runtime(Settings(home=home)) as runtime:
        result = await runtime.run(app.workflow, {"n": 0}, lease_seconds=1.0)
        assert await runtime.world.call("doctor", "default", False) == []
    for server in restarts:
        server.close()
    assert len(restarts) == 2
    assert result.state == {"n": LINKS}


@pytest.mark.more
async def test_cancelled_open_releases_the_embedded_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opening, is_remaining, holds = asyncio.Event(), threading.Event(), list[EmbeddedServer]()
    ring = partial(asyncio.get_running_loop().call_soon_threadsafe, opening.set)

    def open_late(home: Path, **options: Any) -> EmbeddedServer:
        ring()
        is_remaining.wait()
        holds.append(open_embedded(home, **options))
        return holds[0]

    async def enter() -> None:
        async with open_runtime(Settings(home=tmp_path / "home")):
            pass

    monkeypatch.setattr("heliograph.embedded.server.open_embedded", open_late)
    entering = asyncio.create_task(enter())
    await opening.wait()
    entering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await entering
    is_remaining.set()
    await until(lambda: bool(holds) and holds[0].wait_stopped(0))


async def test_finished_work_is_delivered_when_the_database_returns(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    ran, refusals = list[int](), list[str]()
    call = rig.runtime.world.call

    async def away(function: str, *args: object) -> Any:
        if function == "finish" and len(refusals) < 6:
            refusals.append(function)
            raise StoreUnavailable("away")
        return await call(function, *args)

    async def no_time(_seconds: float) -> None:
        await asyncio.sleep(0)

    app = Heliograph("away")
    app.agent(name="a", activate_on=START, effect="once")(lambda ctx: ran.append(ctx.attempt))
    monkeypatch.setattr(rig.runtime.world, "call", away)
    monkeypatch.setattr(rig.runtime.ledger, "world", _Hurried(rig.runtime.world, no_time))
    assert (await rig.run(app)).outcome == "success"
    assert ran == [1]
    assert len(refusals) == 6


@pytest.mark.proves("L0-111", "K23")
@pytest.mark.parametrize("function", ["begin_call", "record_call", "suspend", "finish"])
async def test_released_turn_does_not_wait_for_its_lease_to_expire(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    app, refusals, call = Heliograph("given-up"), list[str](), rig.runtime.world.call

    @app.agent(activate_on=START)
    async def a(ctx: Context) -> None:
        await ctx.step(Step("once", effect="pure"), lambda: None)
        await ctx.pause(0.01)

    async def away(name: str, *args: Any) -> Any:
        if name == function and not refusals:
            refusals.append(name)
            raise StoreUnavailable("away")
        return await call(name, *args)

    monkeypatch.setattr("heliograph.ledger.client.PATIENT_RETRIES", 0)
    monkeypatch.setattr(rig.runtime.world, "call", away)
    run_id = await rig.start(app)
    async with rig.serving(app, lease_seconds=3600):
        assert one(await rig.ended(run_id), "workflow:end")["outcome"] == "success"
    assert refusals == [function]


@pytest.mark.more
async def test_box_unreadable_for_a_moment_fails_no_turn(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    app, refusals, call = Heliograph("reads"), list[str](), rig.runtime.world.call

    @app.agent(activate_on=START)
    async def opener(ctx: Context) -> None:
        await ctx.pause(3600)

    @app.agent(on_request=True, updates="seen")
    async def reader(ctx: Context) -> Any:
        return [card.content for card in await ctx.context()]

    async def away(name: str, *args: Any) -> Any:
        if name == "read_box" and len(refusals) < 6:
            refusals.append(name)
            raise StoreUnavailable("away")
        return await call(name, *args)

    rig.ends_with_open_work = True
    monkeypatch.setattr(rig.runtime.world, "call", away)
    box = await rig.client.boxes.put([{"kind": "note", "content": 1}])
    run_id = await rig.start(app)
    await rig.client.enqueue(run_id, "reader", "read", context_box_id=box)
    async with rig.serving(app):
        await rig.turn_of("reader", "done")
    assert (await rig.runtime.reader.run(run_id)).state["seen"] == [1]


class _Hurried:
    """A world whose sleeps take no time; everything else is the real one's."""

    def __init__(self, world: Any, sleep: Any):
        self._world = world
        self.sleep = sleep

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world, name)


# ── Bells ──


@pytest.fixture
def no_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only bells wake the loops: every poll interval is an hour."""
    monkeypatch.setattr(claim_loop, "POLL_SECONDS", 3600.0)
    monkeypatch.setattr(run_follower, "POLL_SECONDS", 3600.0)


@pytest.mark.usefixtures("no_polls")
@pytest.mark.proves("L0-32")
async def test_chain_of_activations_progresses_by_bells_and_not_by_polling(rig: Rig) -> None:
    app = chain_of_agents()
    run_id = await rig.start(app, {"n": 0})
    async with rig.serving(app, sweep_seconds=3600):
        signals = await rig.ended(run_id)
    assert one(signals, "workflow:end")["state"] == {"n": LINKS}


@pytest.mark.usefixtures("no_polls")
async def test_bell_reaches_a_worker_of_another_runtime(rig: Rig) -> None:
    app = chain_of_agents()
    settings = Settings(database_url=rig.url, project=rig.runtime.settings.project)
    async with open_runtime(settings) as other, rig.serving(app, sweep_seconds=3600, runtime=other):
        result = await rig.run(app, {"n": 0}, worker=False)
    assert result.state == {"n": LINKS}


@pytest.mark.proves("S6", "K10", "L0-08")
async def test_worker_without_bells_does_the_same_work(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim_loop, "POLL_SECONDS", 0.02)
    app = chain_of_agents()
    run_id = await rig.start(app, {"n": 0})
    monkeypatch.setattr(rig.runtime.world, "ring", lambda _keys: None)
    async with rig.serving(app):
        signals = await rig.ended(run_id)
    assert one(signals, "workflow:end")["state"] == {"n": LINKS}


@pytest.mark.proves("S6")
async def test_forged_bell_causes_only_a_poll(rig: Rig) -> None:
    app = chain_of_agents()
    async with rig.serving(app):
        for payload in ("work:chain", "*", "", "work:\nlog:x\0"[:8], "x" * 7000):
            await rig.fetch("select pg_notify('heliograph', $1)", payload)
        run_id = await rig.start(app, {"n": 0})
        signals = await rig.ended(run_id)
    assert one(signals, "workflow:end")["outcome"] == "success"


@pytest.mark.usefixtures("no_polls")
async def test_failed_claim_is_retried_without_a_bell_and_logged_once(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    app, refusals, call = Heliograph("claims"), list[str](), rig.runtime.world.call
    app.agent(name="a", activate_on=START)(lambda _ctx: None)

    async def away(name: str, *args: Any) -> Any:
        if name == "claim" and len(refusals) < 3:
            refusals.append(name)
            raise StoreUnavailable("away")
        return await call(name, *args)

    monkeypatch.setattr(rig.runtime.world, "call", away)
    monkeypatch.setattr(claim_loop, "_CLAIM_AGAIN_SECONDS", 0.01)
    run_id = await rig.start(app)
    async with rig.serving(app, sweep_seconds=3600.0):
        assert one(await rig.ended(run_id), "workflow:end")["outcome"] == "success"
    assert (len(refusals), caplog.text.count("cannot claim")) == (3, 1)


@pytest.mark.usefixtures("no_polls")
async def test_heartbeat_beside_the_end_of_a_turn_silences_no_bell(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The turn is no longer this worker's, because this worker has ended it a moment ago."""
    app, finish, renew = Heliograph("beside"), Ledger.finish, Ledger.renew
    is_renewed = asyncio.Event()

    @app.agent(activate_on=START)
    async def parent(ctx: Context) -> Any:
        return await ctx.delegate("child")

    app.agent(name="child", on_request=True)(lambda _ctx: None)

    async def finish_and_beat(self: Ledger, item: dict[str, Any]) -> Any:
        result = await finish(self, item)
        if "/child" in item["agent_id"]:
            is_renewed.clear()
            self.world.ring(bell_keys(self.project, [f"stop:{worker.name}"]))
            await is_renewed.wait()
        return result

    async def renew_and_signal(self: Ledger, *args: Any) -> Any:
        written = await renew(self, *args)
        is_renewed.set()
        return written

    monkeypatch.setattr(Ledger, "finish", finish_and_beat)
    monkeypatch.setattr(Ledger, "renew", renew_and_signal)
    async with rig.serving(app, sweep_seconds=3600.0) as worker:
        run_id = await rig.start(app)
        assert one(await rig.ended(run_id), "workflow:end")["outcome"] == "success"


# ── The watchdog ──


@pytest.mark.parametrize("error", [KernelRejected("a row is wrong"), StoreUnavailable("away"), ValueError("a bug")])
async def test_failed_sweep_is_retried_and_ends_no_watchdog(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    failures: list[Exception] = []
    sweep = Ledger.sweep

    async def fails_twice(self: Ledger, name: str, *more: object, limit: int = 100) -> Any:
        if name == "leases" and len(failures) < 2:
            failures.append(error)
            raise error
        return await sweep(self, name, *more, limit=limit)

    monkeypatch.setattr(Ledger, "sweep", fails_twice)
    app = Heliograph("swept")
    app.agent(name="a", activate_on=START)(lambda _ctx: None)
    run_id = await rig.start(app)
    await rig.claimed_by_the_dead(app)
    async with rig.serving(app):
        assert one(await rig.ended(run_id), "workflow:end")["outcome"] == "success"
    assert len(failures) == 2


@pytest.mark.proves("K23", "K19")
async def test_turn_whose_every_ending_is_rejected_is_released_while_others_continue(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rejected: list[str] = []
    finish = Ledger.finish

    async def rejects_one(self: Ledger, item: dict[str, Any]) -> Any:
        if item["agent_id"].endswith("/poisoned"):
            rejected.append(item["turn_id"])
            raise KernelRejected("a row is wrong")
        return await finish(self, item)

    monkeypatch.setattr(Ledger, "finish", rejects_one)
    app = Heliograph("poisoned")
    app.agent(name="poisoned", activate_on=START, max_attempts=2)(lambda _ctx: None)
    app.agent(name="sound", activate_on=START, updates="n")(lambda _ctx: 1)
    run_id = await rig.start(app)
    async with rig.serving(app, lease_seconds=0.3):
        signals = await rig.ended(run_id)
    assert one(signals, "agent:failed")["agent"] == "poisoned"
    assert one(signals, "workflow:end")["state"] == {"n": 1}
    assert 2 <= len(rejected) <= 4  # each attempt ends twice at most: as it went, and as failed


async def test_rejected_heartbeat_is_followed_by_others(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    beats: list[int] = []
    renew = Ledger.renew

    async def rejected_once(self: Ledger, items: Any, lease_seconds: float) -> Any:
        beats.append(len(items))
        if len(beats) == 1:
            raise KernelRejected("this one not")
        return await renew(self, items, lease_seconds)

    monkeypatch.setattr(Ledger, "renew", rejected_once)
    app = Heliograph("beats")

    @app.agent(activate_on=START)
    async def a(_ctx: Context) -> None:
        await until(lambda: len(beats) >= 4)

    run_id = await rig.start(app)
    async with rig.serving(app, lease_seconds=0.6):
        signals = await rig.ended(run_id)
    assert one(signals, "workflow:end")["outcome"] == "success"
    assert [turn.attempts for turn in await rig.runtime.reader.turns()] == [0]
