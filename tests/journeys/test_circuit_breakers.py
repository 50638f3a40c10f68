"""One circuit breaker, 64 callers, four workers, one of them killed each second: every trial is counted in the database."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.audit import audited, rows
from tests.journeys.breaker_app import BREAKER, application
from tests.journeys.shared_target import CALLERS, noted_calls, run_with_kills


@pytest.mark.more
@pytest.mark.timeout(180)
@pytest.mark.proves("CB-04", "G-27")
async def test_killed_workers_and_many_callers_never_get_one_trial_too_many(database_url: str, tmp_path: Path) -> None:
    async with audited(database_url) as connection:

        async def has_begun() -> bool:
            return bool(await rows(connection, "states"))

        await run_with_kills(database_url, application, tmp_path, kills=6, has_begun=has_begun)
        states, trials = await rows(connection, "states"), await rows(connection, "trials")
        admissions = await rows(connection, "admissions")
    check_trials(states, trials, admissions)
    check_received(admissions, received(tmp_path))


def check_trials(states: list[Any], trials: list[Any], admissions: list[Any]) -> None:
    """Each half-open time has exactly its trials: all that are allowed, or two that failed. Each is one admission."""
    found = dict.fromkeys(
        (row["generation"], row["state"]) for row in states
    )  # an earlier clock writes an open state twice
    half_open = [generation for generation, state in found if state == "half_open"]
    counts = Counter(row["generation"] for row in trials)
    assert counts == Counter(row["generation"] for row in admissions if row["is_trial"])
    assert counts.keys() <= set(half_open)
    assert len(half_open) > 3
    most = BREAKER["half_open_max_calls"]
    failing = most - BREAKER["success_threshold"] + 1  # so many failures open it again
    assert max(counts.values()) == most
    assert all(
        failing <= counts[generation] <= most for generation in half_open[:-1]
    )  # the last one may still be half open
    assert [generation for generation, _ in found] == list(range(1, len(found) + 1))


def check_received(admissions: list[Any], effects: Counter[str]) -> None:
    """The target received only calls that were admitted."""
    admitted = Counter(row["call"] for row in admissions)
    assert effects.keys() <= admitted.keys()
    assert len(effects) < CALLERS * 4  # most calls never reached the target


def received(folder: Path) -> Counter[str]:
    lines = [line.rsplit("/", 1) for line in noted_calls(folder)]
    return Counter(f"{turn}/c{int(n) + 1}" for turn, n in lines)
