"""A login of the same database listens and rings: it learns no name and no id, and costs a worker a few looks (S25)."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from typing import Any

import asyncpg
import pytest

from heliograph import Context, Heliograph
from heliograph.config import Settings
from heliograph.doorbell import ears as ears_module
from heliograph.doorbell.postgres import CHANNEL, EVENTS_CHANNEL
from heliograph.runtime import Runtime, open_runtime
from heliograph.world import BellKey
from tests.logins import connected, login

RINGS = 6000
PROJECT = "secretproject"


def chain() -> Heliograph:
    app = Heliograph("secretapp")

    @app.agent(activate_on=["workflow:start"], emits=["secret:said"], updates="first")
    def secretfirst(_: Context) -> int:
        return 1

    @app.agent(activate_on=["secret:said"], updates="second")
    def secretsecond(_: Context) -> int:
        return 2

    return app


class Stranger:
    """The rings and events that a login without a role receives on the channels."""

    def __init__(self, connection: asyncpg.Connection):
        self.connection = connection
        self.heard: dict[str, list[str]] = {CHANNEL: [], EVENTS_CHANNEL: []}

    async def listen(self) -> None:
        for channel in self.heard:
            await self.connection.add_listener(channel, self._hear)

    def _hear(self, _connection: Any, _pid: int, channel: str, payload: object) -> None:
        self.heard[channel].append(str(payload))

    async def ring(self, texts: list[str]) -> None:
        await self.connection.execute("select pg_notify($1, t) from unnest($2::text[]) t", CHANNEL, texts)


async def run_elsewhere(url: str, app: Heliograph) -> str:
    """A run that one process starts and another works on; answers its id."""
    async with (
        open_runtime(Settings(url, project=PROJECT)) as asks,
        open_runtime(Settings(url, project=PROJECT)) as works,
    ):
        worker = works.worker(app.workflow)
        serving = asyncio.create_task(worker.run())
        async with asyncio.timeout(60):
            result = await asks.run(app.workflow, {}, worker=False)
        worker.stop()
        await serving
        await worker.watchdog.settle()
    assert result.outcome == "success"
    return result.run_id


@pytest.mark.proves("S25")
async def test_login_without_a_role_hears_no_name_and_no_id(database_url: str) -> None:
    async with login(database_url, services=()) as url, connected(url) as connection:
        stranger = Stranger(connection)
        await stranger.listen()
        await run_elsewhere(database_url, chain())
        await connection.execute("select 1")  # what was sent before has come
        rings = [text for payload in stranger.heard[CHANNEL] for text in payload.split("\n")]
        assert rings
        assert all(re.fullmatch("[0-9a-f]{32}", text) for text in rings)
        events = [json.loads(payload) for payload in stranger.heard[EVENTS_CHANNEL]]
        assert len(events) == 2
        assert all(event["subject"] == "heliograph.event" and event["body"] == {} for event in events)
        assert all(re.fullmatch("[0-9a-f]{32}", event["key"]) for event in events)
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.fetch("select heliograph.bell_key($1)", PROJECT)


async def test_login_of_the_project_knows_its_events_by_their_tokens(database_url: str) -> None:
    async with login(database_url, services=()) as url, connected(url) as connection:
        stranger = Stranger(connection)
        await stranger.listen()
        run_id = await run_elsewhere(database_url, chain())
        await connection.execute("select 1")
        heard = {json.loads(payload)["key"] for payload in stranger.heard[EVENTS_CHANNEL]}
    async with open_runtime(Settings(database_url, project=PROJECT)) as runtime:
        turns = await runtime.reader.turns(run_id=run_id)
        tokens = runtime.world.tokens
        assert heard == {tokens.of(BellKey(PROJECT, f"event:evt:{turn.turn_id}")) for turn in turns}


def count_calls(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The transactions of the kernel that this runtime makes, by function."""
    calls: Counter[str] = Counter()
    call = runtime.world.call

    async def counted(function: str, *args: object) -> Any:
        calls[function] += 1
        return await call(function, *args)

    monkeypatch.setattr(runtime.world, "call", counted)
    return calls


@pytest.mark.proves("S25", "S6")
async def test_thousands_of_forged_rings_cost_an_idle_worker_the_burst_and_no_more(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interval of an hour: what follows the burst of each ear does not depend on how fast this machine is."""
    monkeypatch.setattr(ears_module, "INTERVAL_SECONDS", 3600.0)
    app = chain()
    async with (
        login(database_url, services=()) as url,
        connected(url) as connection,
        open_runtime(Settings(database_url, project=PROJECT)) as runtime,
    ):
        worker = runtime.worker(app.workflow)
        calls = count_calls(runtime, monkeypatch)
        serving = asyncio.create_task(worker.run())
        name = runtime.world.tokens.of
        names = ["work:secretapp", "owed:secretapp", "report:secretapp", f"stop:{worker.name}"]
        forged = [name(BellKey(PROJECT, each)) for each in names] + ["*", "work:secretapp", "x"]
        last = BellKey(PROJECT, "log:last")
        ear = runtime.world.hear([last])
        began = asyncio.get_running_loop().time()
        for _ in range(RINGS // 60):
            await Stranger(connection).ring(["\n".join([text, str(n)]) for n in range(60) for text in forged])
        await Stranger(connection).ring([name(last)])
        async with asyncio.timeout(60):
            assert await ear.wait(60)
        seconds = asyncio.get_running_loop().time() - began
        burst = ears_module.BURST
        # each ring leads to one claim and another shortly after; beside it the worker looks every few seconds by itself
        assert calls["claim"] <= 2 * burst + 2 + seconds
        assert calls["sweep_owed"] <= burst + 2 + 2 * seconds
        assert calls["renew"] <= burst
        # and it still does its work: a start rings from within, or by the poll of some seconds
        async with asyncio.timeout(60):
            result = await runtime.run(app.workflow, {}, worker=False)
        assert result.outcome == "success"
        ear.close()
        worker.stop()
        await serving
