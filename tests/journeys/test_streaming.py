"""Followers of a stream while a worker or the follower itself is killed."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from heliograph import Client, Signal
from heliograph.ledger.pool import Database
from heliograph.signals.model import to_wire
from tests.faces.cli_support import Running, Shell
from tests.journeys.conftest import THOUGHT, WORDS
from tests.reach.model_server import Provider
from tests.runtime.kit import until

KILLS = 3  # of the follower


async def steady(url: str, run_id: str) -> list[Signal]:
    """The log of a follower that is never interrupted."""
    async with Client(url) as client, asyncio.timeout(60):
        return [signal async for signal in client.follow(run_id)]


def disturbed(shell: Shell, started: list[Running], run_id: str) -> list[dict[str, Any]]:
    """The log as a process prints it that is killed after every few lines, and comes back."""
    rows: list[dict[str, Any]] = []
    for kills in range(KILLS + 1):
        after = str(rows[-1]["seq"]) if rows else "0"
        tail = shell.start("signal", "tail", "--run", run_id, "--follow", "--after", after, "--json")
        started.append(tail)
        wanted = None if kills == KILLS else len(rows) + 6
        while len(rows) != wanted and (not rows or rows[-1]["name"] != "workflow:end"):
            rows.append(json.loads(tail.read_until("{")))
        tail.process.kill()
        tail.process.wait()
    return rows


@pytest.mark.proves("SIG-28", "SIG-29", "SIG-30", "SIG-31", "G-48", "L0-111")
async def test_stream_restarts_after_a_kill_and_no_follower_misses_or_repeats_a_delta(
    shell: Shell, database_url: str, database: Database, provider: Provider, started: list[Running]
) -> None:
    run = ("run", "stream_app.py:app", "--run-id", "s")
    first = shell.start(*run)
    started.append(first)
    first.read_until("has started")
    following = asyncio.create_task(steady(database_url, "s"))
    tailing = asyncio.create_task(asyncio.to_thread(disturbed, shell, started, "s"))
    await until(lambda: has_emitted_signals(database))
    first.process.kill()
    await database.fetch("update heliograph.agent_state_head set lease_until = now() where lease_until is not null")
    again = shell.start(*run)
    started.append(again)
    signals, rows = await following, await tailing
    assert await asyncio.to_thread(again.end) == 0, again.text

    assert [signal.seq for signal in signals] == list(range(1, len(signals) + 1))
    assert rows == [{"type": "signal", **json.loads(json.dumps(to_wire(signal)))} for signal in signals]
    begun = [signal.id for signal in signals if signal.name == "harness:start"]
    assert len(begun) == len(provider.requests) == 2
    cut, whole = (of_answer(signals, start) for start in begun)
    assert cut["thinking:delta"] + cut["text:delta"] != ""
    assert (THOUGHT + "".join(WORDS)).startswith(cut["thinking:delta"] + cut["text:delta"])
    assert "text:complete" not in cut
    assert whole["thinking:delta"] == whole["thinking:complete"] == THOUGHT
    assert whole["text:delta"] == whole["text:complete"] == "".join(WORDS)


async def has_emitted_signals(database: Database) -> bool:
    return len(await database.fetch("select from heliograph.signal_log where name = 'text:delta'")) >= 3


def of_answer(signals: list[Signal], start: str) -> dict[str, str]:
    """The texts of one model reply: the joined deltas, after a check of their offsets, and the complete texts."""
    texts = {"thinking:delta": "", "text:delta": ""}
    for signal in signals:
        payload: Any = signal.payload
        if signal.parent == start and signal.name in ("thinking:delta", "text:delta"):
            assert payload["offset"] == len(texts[signal.name])
            texts[signal.name] += payload["content"]
        elif signal.parent == start and signal.name.endswith(":complete"):
            texts[signal.name] = payload["content"]
    return texts
