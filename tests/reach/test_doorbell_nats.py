"""The doorbell over NATS keeps the contract, uses the subjects of L0, and is optional."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from heliograph import Client, run_follower
from heliograph.config import Settings
from heliograph.doorbell.nats import NatsDoorbell, flushed, key_of, safe_subject, subject_of
from heliograph.errors import SetupError
from heliograph.outbox_records import Event
from heliograph.runtime import Runtime, open_runtime
from heliograph.subscriptions import search_schedule
from heliograph.testing.conformance import DoorbellConformance, RecordedRings, eventually
from heliograph.worker import claim_loop
from heliograph.world import follower_bells
from tests.reach.nats_ground import EVERYTHING, NatsGround, finishes, opened, two_steps
from tests.reach.nats_kit import NatsServer
from tests.reach.serving import serving


class TestNatsDoorbell(DoorbellConformance):
    @pytest.mark.proves("L0-32", "L0-08", "L0-105", "G-72")
    async def test_wakeup_names_the_pool_and_hints_at_its_agents(self, ground: NatsGround) -> None:
        messages: asyncio.Queue[Any] = asyncio.Queue()

        async def receive(message: Any) -> None:
            messages.put_nowait(message)

        outsider = await ground.connect()
        await outsider.subscribe(EVERYTHING, cb=receive)
        await flushed(outsider)
        self.local.ring(["work:newsroom", "log:run_1"], ["run_1/critic"])
        found = [await messages.get(), await messages.get()]
        assert sorted((each.subject, each.data, each.headers) for each in found) == [
            (
                "cmd.agent.newsroom.wakeup",
                b'{"agent_id":"run_1/critic","metadata":{"agent_ids":["run_1/critic"]}}',
                None,
            ),
            ("heliograph.bell.log%3Arun_1", b"", None),
        ]
        self.local.ring(["work:newsroom"], (f"run_1/agent_{n}" for n in range(100_000)))
        body = json.loads((await messages.get()).data)
        assert len(body["metadata"]["agent_ids"]) == 100
        assert body["agent_id"] == body["metadata"]["agent_ids"][0]

    async def test_events_published_during_an_outage_are_dropped(self, ground: NatsGround) -> None:
        await ground.cut()
        await eventually(lambda: not self.local.is_up)
        for n in range(2000):
            self.local.publish_event("evt.agent.lost.step", {"n": n})
        await ground.restore()
        await eventually(lambda: self.local.is_up)
        receive: asyncio.Queue[str] = asyncio.Queue()

        async def on_message(message: Any) -> None:
            receive.put_nowait(message.subject)

        outsider = await ground.connect()
        await outsider.subscribe("evt.>", cb=on_message)
        await flushed(outsider)
        self.local.publish_event("evt.agent.run_1/a.step", {"n": 1})
        assert await receive.get() == "evt.agent.run_1%2Fa.step"

    @pytest.mark.proves("G-61")
    async def test_reconnection_does_not_confirm_an_earlier_event(
        self, ground: NatsGround, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert isinstance(self.local, NatsDoorbell)
        local_bell = self.local
        client = local_bell._client

        answer = client.rtt

        async def break_and_measure(seconds: float) -> float:
            """The connection breaks while the answer is waited for, and there is all the time for the next one."""
            await ground.cut()
            await ground.restore()
            await eventually(lambda: local_bell._client is not client and local_bell.is_up)
            return float(await answer(seconds))

        monkeypatch.setattr(client, "rtt", break_and_measure)
        with pytest.raises(OSError, match="did not confirm"):
            await self.local.publish([Event(1, "evt:turn_1", "evt.agent.run_1.task", {})])


@pytest.mark.proves("L0-71")
@pytest.mark.parametrize(
    ("given", "on_the_wire"),
    [
        ("evt.agent.run_7f/critic.task", "evt.agent.run_7f%2Fcritic.task"),
        ("evt.agent.*.task", "evt.agent.%2A.task"),
        ("evt.agent.>.task", "evt.agent.%3E.task"),
        ("evt.agent.a b.task", "evt.agent.a%20b.task"),
        ("evt.agent..task", "evt.agent.%.task"),
    ],
)
def test_agent_id_is_one_token_of_its_subject(given: str, on_the_wire: str) -> None:
    assert safe_subject(given) == on_the_wire


@pytest.mark.parametrize(
    "key", ["work:newsroom", "work:a.b", "log:run_-x", "log:*", "reaction:>", "reaction:a b", "x.y:ä/%~"]
)
def test_every_key_round_trips_through_its_subject(key: str) -> None:
    assert key_of(subject_of(key)) == key
    assert not set(subject_of(key)) & set("*> ")


@pytest.mark.parametrize(
    "subject",
    ["cmd.agent.wakeup", "cmd.agent.a.b.wakeup", "heliograph.bell", "heliograph.bell.a.b", "evt.agent.a.task", ""],
)
def test_foreign_subject_maps_to_no_key(subject: str) -> None:
    assert key_of(subject) is None


@pytest.mark.parametrize(
    "url", ["", "localhost", "http://a:1", "nats://", "nats://a:x", "nats://a:4222,", "nats://a:0"]
)
async def test_impossible_url_is_rejected_at_once(url: str) -> None:
    with pytest.raises(SetupError, match="HELIOGRAPH_NATS_URL is malformed"):
        NatsDoorbell(url, RecordedRings())


def test_missing_extra_is_reported_with_its_install_command() -> None:
    program = "import sys; sys.modules['nats'] = None; import heliograph.doorbell.nats"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "SetupError: HELIOGRAPH_NATS_URL needs the NATS client: pip install 'heliograph[nats]'" in done.stderr


@pytest.mark.more
def test_runtime_without_nats_does_not_import_it() -> None:
    program = "import sys, heliograph.runtime; sys.exit('nats' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


# ── Runs with NATS, and with less and less of it ─────────────────────────────────────────────


@pytest.mark.proves("L0-105", "G-72")
async def test_wakeup_lists_the_agents_with_work(database_url: str, server: NatsServer, ground: NatsGround) -> None:
    named: set[str] = set()

    async def receive(message: Any) -> None:
        body = json.loads(message.data)
        named.update(body["metadata"]["agent_ids"], [body["agent_id"]] if body["agent_id"] else [])

    watcher = await ground.connect()
    await watcher.subscribe("cmd.agent.bells.wakeup", cb=receive)
    await flushed(watcher)
    async with opened(database_url, server.url) as runtime:
        result = await runtime.run(two_steps().workflow, {}, run_id="told")
        assert result.outcome == "success"
        await eventually(lambda: named == {"told/first", "told/second"})


@pytest.mark.proves("L0-32", "L0-04")
async def test_worker_elsewhere_is_woken_over_nats_alone(
    database_url: str, server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim_loop, "POLL_SECONDS", 3600.0)
    app = two_steps()
    async with opened(database_url, server.url) as starter, opened(database_url, server.url) as elsewhere:
        without_postgres(starter)
        async with serving(elsewhere, app, sweeps=False), asyncio.timeout(60):
            await starter.run(app.workflow, {}, worker=False)


@pytest.mark.more
async def test_subscriber_elsewhere_is_announced_and_woken_over_nats_alone(
    database_url: str, server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_schedule, "POLL_SECONDS", 3600.0)
    app = two_steps()
    async with opened(database_url, server.url) as emitter, opened(database_url, server.url) as elsewhere:
        without_postgres(emitter)
        await emitter.run(app.workflow, {}, run_id="first")
        bells = emitter.world.bells._signals[emitter.settings.project]
        bells._is_known_at = 0.0  # without an announcement, nobody rings
        signals = Client.on(elsewhere).subscribe("s", ["halfway"])
        receiving = asyncio.ensure_future(anext(signals))
        await eventually(lambda: bool(bells._until))
        await emitter.run(app.workflow, {}, run_id="second")
        async with asyncio.timeout(60):
            assert (await receiving).run_id == "second"
        await signals.aclose()


@pytest.mark.more
async def test_follower_elsewhere_is_announced_and_woken_over_nats_alone(
    database_url: str, server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_follower, "POLL_SECONDS", 3600.0)
    monkeypatch.setattr("heliograph.world.bells.SETTLED_SECONDS", 3600.0)
    monkeypatch.setattr(follower_bells, "UNKNOWN_SECONDS", 0.0)  # without an announcement, nobody rings
    announced = threading.Event()

    def until_announced() -> None:
        announced.wait()

    app = two_steps(until_announced)
    async with opened(database_url, server.url) as follower, opened(database_url, server.url) as elsewhere:
        without_postgres(follower)
        without_postgres(elsewhere)
        followers = elsewhere.world.bells._followers
        assert not followers._is_present(elsewhere.settings.project)
        async with serving(elsewhere, app, sweeps=False), asyncio.timeout(60):
            running = asyncio.create_task(follower.run(app.workflow, {}, worker=False))
            await eventually(lambda: followers._is_present(elsewhere.settings.project))
            announced.set()
            assert (await running).state == {"first": 1, "second": 2}


@pytest.mark.more
@pytest.mark.proves("L0-04", "L0-08")
async def test_death_of_nats_during_a_run_costs_latency_only(
    database_url: str, server: NatsServer, ground: NatsGround
) -> None:
    async with opened(database_url, server.url) as runtime:
        await finishes(runtime, two_steps(between=server.kill))
        waiting = "select count(*) from heliograph.outbox where published_at is null"
        assert (await runtime.database.fetch(waiting))[0][0] >= 1  # kept for the subscribers of NATS
        server.start()
        await eventually(lambda: runtime.world.bells.wires[0].is_up)
        events = await ground.listen()
        await runtime.worker(two_steps().workflow).watchdog.relay()
        assert (await events.get())[1].startswith("default/bells/evt:turn_")
        assert (await runtime.database.fetch(waiting))[0][0] == 0


async def test_bell_of_postgresql_rings_without_nats_at_the_start(
    database_url: str, server: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.kill()
    with caplog.at_level(logging.WARNING, "heliograph.doorbell"):
        async with opened(database_url, server.url) as runtime:
            assert "cannot reach NATS at 127.0.0.1" in caplog.text
            assert [bell.is_up for bell in runtime.world.bells.wires] == [False, True]
            await finishes(runtime, two_steps())


@pytest.mark.more
@pytest.mark.proves("L0-04", "L0-08")
async def test_run_ends_within_the_poll_bounds_although_every_ring_is_lost(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim_loop, "POLL_SECONDS", 0.05)
    app = two_steps()
    async with opened_deaf(database_url) as starter, opened_deaf(database_url) as elsewhere:
        async with serving(elsewhere, app), asyncio.timeout(60):
            result = await starter.run(app.workflow, {}, worker=False)
        assert result.outcome == "success"


@pytest.mark.more
@pytest.mark.proves("S6", "L0-04", "L0-08")
async def test_forged_bells_make_a_worker_poll_and_change_nothing(
    database_url: str, server: NatsServer, ground: NatsGround
) -> None:
    app = two_steps()
    async with opened(database_url, server.url) as runtime, serving(runtime, app):
        before = await everything(runtime)
        forger = await ground.connect()
        for _ in range(1000):
            await forger.publish(
                "cmd.agent.bells.wakeup",
                b'{"agent_id": "run_x/first", "metadata": {"agent_ids": ["run_x/first", 7]}, "inbox_id": 1}',
            )
            await forger.publish("cmd.agent.bells.wakeup", b'{"agent_ids": \xff')
            await forger.publish("heliograph.bell.reaction%3Abells", b"x")
        await flushed(forger)
        assert await everything(runtime) == before
        await finishes(runtime, app)
        assert await runtime.world.call("doctor", "default", False) == []


async def everything(runtime: Runtime) -> list[Any]:
    tables = ("runs", "agent_state_head", "agent_turns", "agent_inbox", "outbox", "signals", "leases")
    return [await runtime.database.fetch(f"select t::text from heliograph.{table} t order by 1") for table in tables]


def without_postgres(runtime: Runtime) -> None:
    nats_bell, _ = runtime.world.bells.wires
    assert nats_bell.is_up
    runtime.world.bells.wires = [nats_bell]


@asynccontextmanager
async def opened_deaf(database_url: str) -> AsyncIterator[Runtime]:
    """A runtime whose rings reach no other process."""
    async with open_runtime(Settings(database_url)) as runtime:
        runtime.world.bells.wires = []
        yield runtime
