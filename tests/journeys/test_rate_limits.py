"""One rate limit, 64 callers, four workers, one of them killed each second: the tokens are counted in the database."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import asyncpg
import pytest

from heliograph.config import Settings
from heliograph.runtime import open_runtime
from tests.journeys.rate_app import PER_SECOND, ROUNDS, application

ROOT = Path(__file__).parent.parent.parent
WORKERS, CALLERS, KILLS = 4, 64, 5
_STARTS = """
select w.agent_turn_id || '/' || substr(w.tool_call_id, 2) as call,
       extract(epoch from (w.rate ->> 'starts_at')::timestamptz)::float8 as starts_at
  from heliograph.turn_waiting_tools w where w.rate is not null order by 2
"""


@pytest.mark.more
@pytest.mark.timeout(180)
@pytest.mark.proves("RTE-08", "G-24")
async def test_killed_workers_and_many_callers_never_start_one_call_too_many(database_url: str, tmp_path: Path) -> None:
    environment = {**os.environ, "HELIOGRAPH_DATABASE_URL": database_url, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    command = [sys.executable, "-m", "tests.journeys.rate_app", str(CALLERS), str(tmp_path)]
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
        starts = {row["call"]: row["starts_at"] for row in await connection.fetch(_STARTS)}
        full_at = await connection.fetchval("select full_at from heliograph.rate_buckets where name = 'target'") / 1e9
    finally:
        await connection.close()
    effects = received(tmp_path)
    assert starts.keys() == {call for call, _ in effects}
    assert len(starts) == CALLERS * ROUNDS
    # No window has more starts than a full bucket and its refill.
    times = sorted(starts.values())
    for first, begun in enumerate(times):
        for last in range(first, len(times)):
            assert last - first + 1 <= PER_SECOND + (times[last] - begun) * PER_SECOND + 1e-3
    # No effect comes before the start of its call. A killed worker's call starts once more, later.
    late = {call: max(at for other, at in effects if other == call) for call in starts}
    assert all(late[call] >= starts[call] - 0.002 for call in starts)
    # Each effect has its token, also that of a killed worker. Time in which the bucket was full counts as taken.
    assert len(effects) - 0.01 <= (full_at - times[0]) * PER_SECOND
    assert len(effects) >= len(starts)


def received(folder: Path) -> list[tuple[str, float]]:
    lines = [line.split() for file in folder.iterdir() for line in file.read_text().splitlines()]
    return [(call, float(at)) for call, at in lines]
