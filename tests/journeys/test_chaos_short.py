from pathlib import Path
from typing import Any

import asyncpg
import pytest

from heliograph.errors import StoreUnavailable
from heliograph.runtime import Runtime
from heliograph.testing.mutants.catalog import MUTANTS as SIMULATED
from tests.journeys.chaos import client
from tests.journeys.chaos.marks import read_lines
from tests.journeys.chaos.mutants import MUTANTS, UNSEEN, apply
from tests.journeys.chaos.options import Options
from tests.journeys.chaos.report import lines
from tests.journeys.chaos.run import run_chaos

# A few of each cheap fault; a full disk needs root, and a connection that vanishes is missed only after half a minute.
SHORT = Options(
    runs=200, seed=7, workers=3, clients=1, lease_seconds=0.8, open_max=8, chaos_seconds=9, limit_seconds=110,
    kill_worker_every=1, kill_client_every=2.5, freeze_every=1.5, cut_every=2.5, hole_every=4, vanish_every=0,
    delay_every=5, pg_stop_every=3, disk_full_every=0, slow_fsync_every=6, nats_down_every=4,
)  # fmt: skip
LEAST = {"kill_worker": 3, "kill_client": 1, "freeze": 1, "cut": 1, "hole": 1, "pg_stop": 1, "nats_down": 1}


@pytest.mark.proves(
    "K1", "K6", "K7", "K12", "K14", "K19", "K20", "K24", "K25", "K26", "L0-01", "L0-06", "L0-07", "L0-34"
)
@pytest.mark.proves("L0-64", "L0-111", "L0-112", "G-60", "G-61", "G-74", "S11")
@pytest.mark.timeout(240)
async def test_killed_frozen_disconnected_and_misled_processes_lose_and_repeat_nothing(
    tmp_path: Path,
) -> None:
    report = await run_chaos(tmp_path, SHORT)
    print("\n".join(lines(report)))
    assert report.violations == []
    assert {kind: times for kind, times in LEAST.items() if report.injected.get(kind, 0) < times} == {}
    assert report.figures["recoveries"]
    assert report.figures["clock_off_s_seen"] > 60


async def test_client_repeats_a_start_whose_answer_was_lost_although_no_run_is_to_be_started_any_more(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise nobody would stop that run, which may be endless."""
    monkeypatch.setenv("HELIOGRAPH_DATABASE_URL", database_url)
    commit, answers = Runtime.start, [StoreUnavailable("the connection was lost")]

    async def start(runtime: Runtime, *arguments: Any) -> Any:
        run = await commit(runtime, *arguments)
        (tmp_path / client.ENOUGH).touch()
        if answers:
            raise answers.pop()
        return run

    monkeypatch.setattr(Runtime, "start", start)
    await client.main(range(1, 100, 4), 0.0, 8, tmp_path)
    assert read_lines(tmp_path / client.ACKNOWLEDGED) == ["run_trial_1"]
    assert read_lines(tmp_path / client.SERVED) == ["run_trial_1"]


@pytest.mark.parametrize("name", [name for name, mutant in MUTANTS.items() if mutant.edits])
async def test_chaos_detects_each_of_its_own_mutants(database_url: str, name: str) -> None:
    connection = await asyncpg.connect(database_url)
    try:
        await apply(connection, MUTANTS[name])
    finally:
        await connection.close()


def test_chaos_covers_each_sql_mutant_of_the_simulator_or_lists_it_as_invisible() -> None:
    assert {name for name, mutant in SIMULATED.items() if mutant.has_sql} <= MUTANTS.keys()
    assert UNSEEN.keys() <= MUTANTS.keys()
    assert all(UNSEEN.values())
