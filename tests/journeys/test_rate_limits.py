"""One rate limit, 64 callers, four workers, one of them killed each second: the tokens are counted in the database."""

from __future__ import annotations

from pathlib import Path

import asyncpg
import pytest

from tests.journeys.rate_app import PER_SECOND, ROUNDS, application
from tests.journeys.shared_target import CALLERS, noted_calls, run_with_kills

_STARTS = """
select w.agent_turn_id || '/' || substr(w.tool_call_id, 2) as call,
       extract(epoch from (w.rate ->> 'starts_at')::timestamptz)::float8 as starts_at
  from heliograph.turn_waiting_tools w where w.rate is not null order by 2
"""


@pytest.mark.more
@pytest.mark.timeout(180)
@pytest.mark.proves("RTE-08", "G-24")
async def test_killed_workers_and_many_callers_never_start_one_call_too_many(database_url: str, tmp_path: Path) -> None:
    await run_with_kills(database_url, application, tmp_path, kills=5)
    connection = await asyncpg.connect(database_url)
    try:
        starts = {row["call"]: row["starts_at"] for row in await connection.fetch(_STARTS)}
        full_at = await connection.fetchval("select full_at from heliograph.rate_buckets where name = 'target'") / 1e9
    finally:
        await connection.close()
    effects = [(call, float(at)) for call, at in map(str.split, noted_calls(tmp_path))]
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
