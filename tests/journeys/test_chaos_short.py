from pathlib import Path

import pytest

from tests.journeys.chaos import Options, run_chaos

SHORT = Options(runs=40, seed=7, workers=3, lease_seconds=0.8, start_every=0.2, kill_every=0.7, stop_every=1.5,
                limit_seconds=60)  # fmt: skip


@pytest.mark.proves("K1", "K6", "K7", "K14", "K24", "K25", "K26", "L0-01", "L0-07", "L0-111", "G-60", "G-61")
@pytest.mark.timeout(100)
async def test_workers_that_are_killed_and_frozen_all_the_time_lose_nothing_and_do_nothing_twice(
    database_url: str, tmp_path: Path
) -> None:
    report = await run_chaos(database_url, tmp_path, SHORT)
    assert report.violations == []
    assert report.kills >= 8
    assert report.stops >= 3
    assert report.figures["recoveries"]
    assert report.figures["deadlocks"] == 0
