"""Halts of turns whose worker is frozen or dead."""

from __future__ import annotations

import asyncio
import json
import signal

import pytest

from heliograph import Client
from heliograph.config import Settings
from heliograph.ledger.pool import Database
from heliograph.runtime import open_runtime
from tests.faces.cli_support import Running, Shell
from tests.journeys.stream_app import app
from tests.reach.model_server import Provider
from tests.runtime.kit import names, one, until

WORKER = ("worker", "stream_app.py:app", "--lease", "60", "--name")


@pytest.mark.proves("CTL-73", "G-08", "G-66", "K7", "K12", "L0-110")
@pytest.mark.parametrize("how", [signal.SIGSTOP, signal.SIGKILL], ids=["frozen", "killed"])
async def test_halted_turn_of_a_frozen_or_dead_worker_ends_after_the_grace_without_late_writes(
    shell: Shell, database_url: str, database: Database, provider: Provider, started: list[Running], how: signal.Signals
) -> None:
    first = shell.start(*WORKER, "first")
    started.append(first)
    await asyncio.to_thread(first.read_until, "started")
    async with open_runtime(Settings(database_url=database_url)) as runtime:
        await runtime.start(app.workflow, {}, "r")
    await until(lambda: _has_emitted_signals(database))
    first.signal(how)
    second = shell.start(*WORKER, "second")
    started.append(second)
    stop = await asyncio.to_thread(shell.helio, "run", "stop", "r", "--grace", "1", "--by", "ada", "--json")
    assert json.loads(stop.stdout)["outcome"] == "stopping"
    async with Client(database_url) as client, asyncio.timeout(60):
        signals = [each async for each in client.follow("r")]
    assert one(signals, "agent:failed")["outcome"] == "canceled"
    assert one(signals, "halt")["actor"] == "ada"
    assert "text:complete" not in names(signals)
    if how is signal.SIGSTOP:
        first.signal(signal.SIGCONT)
        await asyncio.to_thread(first.read_until, "this worker")  # its turn was taken from it
    else:
        await until(lambda: provider.disconnected == 1)
    async with Client(database_url) as client:
        assert [each async for each in client.follow("r")] == signals
        [turn] = await database.fetch("select agent_turn_id, outcome from heliograph.agent_turns")
        [card] = await database.fetch("select content from heliograph.cards where kind = 'task.deliverable'")
    assert turn["outcome"] == "canceled"
    assert json.loads(card["content"])["error"]["code"] == "CANCELED"


async def _has_emitted_signals(database: Database) -> bool:
    return len(await database.fetch("select from heliograph.signal_log where name = 'text:delta'")) >= 3
