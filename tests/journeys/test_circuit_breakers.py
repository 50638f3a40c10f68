"""One circuit breaker, 64 callers, four workers, one of them killed each second: the trials are counted in the database."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import asyncpg
import pytest

from heliograph.config import Settings
from heliograph.runtime import open_runtime
from tests.journeys.breaker_app import BREAKER, application

ROOT = Path(__file__).parent.parent.parent
WORKERS, CALLERS, KILLS = 4, 64, 6
_TRIALS = """
select w.circuit ->> 'generation' as generation, count(*) as trials
  from heliograph.turn_waiting_tools w where (w.circuit -> 'is_trial')::boolean group by 1
"""


@pytest.mark.more
@pytest.mark.timeout(180)
@pytest.mark.proves("CB-04", "G-27")
async def test_killed_workers_and_many_callers_never_get_one_trial_too_many(database_url: str, tmp_path: Path) -> None:
    environment = {**os.environ, "HELIOGRAPH_DATABASE_URL": database_url, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    command = [sys.executable, "-m", "tests.journeys.breaker_app", str(CALLERS), str(tmp_path)]
    workers: list[subprocess.Popen[bytes]] = []

    def begin() -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, env=environment, cwd=ROOT)

    try:
        async with open_runtime(Settings(database_url=database_url)) as runtime:
            run_id, _ = await runtime.start(application(CALLERS, str(tmp_path)).workflow, {}, None)
            workers = [begin() for _ in range(WORKERS)]
            for n in range(KILLS):
                await asyncio.sleep(1)
                workers[n % WORKERS].kill()
                workers[n % WORKERS].wait()
                workers[n % WORKERS] = begin()
            signals = [signal async for signal in runtime.follow(run_id)]
            assert signals[-1].name == "workflow:end"
            assert await runtime.world.call("doctor", runtime.settings.project, False) == []
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    connection = await asyncpg.connect(database_url)
    try:
        trials = {row["generation"]: row["trials"] for row in await connection.fetch(_TRIALS)}
    finally:
        await connection.close()
    assert len(trials) > 3
    assert max(trials.values()) == BREAKER["half_open_max_calls"], Counter(trials.values())
    assert received(tmp_path) < CALLERS * 4  # most calls never reached the target


def received(folder: Path) -> int:
    return sum(len(file.read_text().splitlines()) for file in folder.iterdir())
