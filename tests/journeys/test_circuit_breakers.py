"""One circuit breaker, 64 callers, four workers, one of them killed each second: the trials are counted in the database."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import asyncpg
import pytest

from tests.journeys.breaker_app import BREAKER, application
from tests.journeys.shared_target import CALLERS, noted_calls, run_with_kills

_TRIALS = """
select w.circuit ->> 'generation' as generation, count(*) as trials
  from heliograph.turn_waiting_tools w where (w.circuit -> 'is_trial')::boolean group by 1
"""


@pytest.mark.more
@pytest.mark.timeout(180)
@pytest.mark.proves("CB-04", "G-27")
async def test_killed_workers_and_many_callers_never_get_one_trial_too_many(database_url: str, tmp_path: Path) -> None:
    await run_with_kills(database_url, application, tmp_path, kills=6)
    connection = await asyncpg.connect(database_url)
    try:
        trials = {row["generation"]: row["trials"] for row in await connection.fetch(_TRIALS)}
    finally:
        await connection.close()
    assert len(trials) > 3
    assert max(trials.values()) == BREAKER["half_open_max_calls"], Counter(trials.values())
    assert len(noted_calls(tmp_path)) < CALLERS * 4  # most calls never reached the target
