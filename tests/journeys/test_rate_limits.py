"""One rate limit, 64 callers, four workers, one of them killed each second: every token is counted in the database."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.audit import audited, rows
from tests.journeys.rate_app import PER_SECOND, ROUNDS, application
from tests.journeys.shared_target import CALLERS, noted_calls, run_with_kills

INTERVAL_NS = 1_000_000_000 // PER_SECOND
_CLOCK_SECONDS = 0.002


@pytest.mark.more
@pytest.mark.timeout(180)
@pytest.mark.proves("RTE-08", "G-24")
async def test_killed_workers_and_many_callers_never_take_one_token_too_many_or_too_few(
    database_url: str, tmp_path: Path
) -> None:
    async with audited(database_url) as connection:

        async def has_begun() -> bool:
            return bool(await rows(connection, "starts"))

        await run_with_kills(database_url, application, tmp_path, kills=5, has_begun=has_begun)
        starts, buckets = await rows(connection, "starts"), await rows(connection, "buckets")
    check_tokens(starts, buckets)
    check_windows(sorted(row["starts_at_us"] for row in starts))
    check_effects(starts, received(tmp_path))


def check_tokens(starts: list[Any], buckets: list[Any]) -> None:
    """Each start has taken exactly one token, and each owner of a call has begun it exactly once."""
    assert len(buckets) == len(starts)
    assert all(row["after_ns"] - max(row["before_ns"], row["start_ns"]) == INTERVAL_NS for row in buckets)
    assert all(earlier["after_ns"] == later["before_ns"] for earlier, later in pairwise(buckets))
    assert max(Counter((row["call"], row["epoch"]) for row in starts).values()) == 1
    assert len({row["call"] for row in starts}) == CALLERS * ROUNDS
    assert len(starts) > CALLERS * ROUNDS  # calls of killed workers have begun again


def check_windows(times: list[int]) -> None:
    """No window has more starts than a full bucket and its refill. Whole microseconds, without a tolerance."""
    for first, begun in enumerate(times):
        for last in range(first, len(times)):
            assert (last - first + 1 - PER_SECOND) * 1_000_000 <= (times[last] - begun) * PER_SECOND


def check_effects(starts: list[Any], effects: dict[str, list[float]]) -> None:
    """Each effect has a token of its own, whose start it follows; also that of a killed worker."""
    begun: dict[str, list[float]] = {}
    for row in starts:
        begun.setdefault(row["call"], []).append(row["starts_at_us"] / 1e6)
    assert effects.keys() == begun.keys()
    for call, times in effects.items():
        starts_at = sorted(begun[call])
        for n, at in enumerate(sorted(times), 1):
            assert bisect_right(starts_at, at + _CLOCK_SECONDS) >= n, (call, at, starts_at)


def received(folder: Path) -> dict[str, list[float]]:
    """The times of the effects of each call."""
    found: dict[str, list[float]] = {}
    for call, at in map(str.split, noted_calls(folder)):
        turn, n = call.rsplit("/", 1)
        found.setdefault(f"{turn}/c{n}", []).append(float(at))
    return found
