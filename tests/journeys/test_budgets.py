"""One budget, many children, several workers, one of them killed between the reserve and the settle; counted by the model."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from heliograph.config import Settings
from heliograph.runtime import open_runtime
from tests.journeys.budget_app import OUTPUT_TOKENS, application
from tests.reach.model_server import Answer, Provider, env_of, serve

ROOT = Path(__file__).parent.parent.parent
USAGE = (40, 60)  # tokens of one answer, as the provider counts
KILLED = 3  # questions that are under way when their worker is killed


@pytest.mark.proves("S12")
@pytest.mark.parametrize(
    ("children", "tokens"),
    [(60, 4_000), pytest.param(1000, 50_000, marks=[pytest.mark.long, pytest.mark.timeout(600)])],
)
async def test_budget_shared_by_children_on_several_workers_is_never_exceeded_when_workers_die(
    database_url: str, children: int, tokens: int
) -> None:
    gate, cost = threading.Event(), sum(USAGE)
    gated, free = Answer(("done",), usage=USAGE, gate=gate), Answer(("done",), usage=USAGE)
    workers: list[subprocess.Popen[bytes]] = []
    with serve(Provider([*[gated] * KILLED, free])) as provider:
        environment = {**os.environ, **env_of(provider), "HELIOGRAPH_DATABASE_URL": database_url,
                       "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}  # fmt: skip

        def begin() -> None:
            # a process of its own, which is dead once `wait` returns: a fork asks the model for a moment longer
            command = [sys.executable, "-m", "tests.journeys.budget_app", str(children), str(tokens)]
            workers.append(subprocess.Popen(command, env=environment, cwd=ROOT))

        try:
            async with open_runtime(Settings(database_url=database_url)) as runtime:
                begin()
                run_id, _ = await runtime.start(application(children, tokens).workflow, {}, None)
                await eventually(lambda: len(provider.requests) >= KILLED)
                end_of(workers[0])
                requested, then = len(provider.requests), await budget(database_url)
                gate.set()
                await end_leases(database_url)
                begin()
                begin()
                signals = [signal async for signal in runtime.follow(run_id)]
                end: Any = signals[-1].payload
                for worker in workers:
                    end_of(worker)
                answered, after = end["state"]["found"].count("done"), await budget(database_url)
                # model calls of a dead worker count with their whole reservation, and were repeated
                assert (after["used"], after["reserved"], after["overspent"]) == (
                    cost * answered + then["reserved"],
                    0,
                    0,
                )
                assert len(provider.requests) == answered + requested - then["used"] // cost
                # the provider counts the requests itself, and each one limits its output
                assert cost * len(provider.requests) <= tokens
                assert {body["max_completion_tokens"] for body in provider.requests} <= set(
                    range(64, OUTPUT_TOKENS + 1)
                )
                # the rest is too small for a call, and a turn that got too little ends as partial
                assert tokens - after["used"] < 400
                outcomes = Counter(
                    turn.outcome for turn in await runtime.reader.turns(limit=2000) if turn.agent == "child"
                )
                assert outcomes == {"success": answered, "partial": children - answered}
                assert await runtime.world.call("doctor", runtime.settings.project, False) == []
        finally:
            gate.set()
            for worker in workers:
                end_of(worker)


def end_of(worker: subprocess.Popen[bytes]) -> None:
    worker.kill()
    worker.wait()


async def eventually(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(300):  # a thousand children begin before the first call, on a machine with other work
        while not is_so():  # noqa: ASYNC110  no event announces it
            await asyncio.sleep(0.02)


async def end_leases(url: str) -> None:
    """Let all leases run out, as those of a dead worker do."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(
            "update heliograph.agent_state_head set lease_until = clock_timestamp() where status = 'running'"
        )
    finally:
        await connection.close()


async def budget(url: str) -> Any:
    """The only budget in the database. It also runs ANALYZE, as PostgreSQL does by itself within two minutes."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("analyze")
        [row] = await connection.fetch("select * from heliograph.budget_overview")
    finally:
        await connection.close()
    return row
