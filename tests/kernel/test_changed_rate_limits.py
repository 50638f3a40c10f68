"""Buckets whose limit changes, and rate limits of calls behind a circuit breaker (RTE-08, G-24)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kernel.circuits import breaker, fail, half_open, opened, try_call
from tests.kernel.filled import BREAKER, RATE
from tests.kernel.kit import Item, Kernel
from tests.kernel.test_rate_limits import TOKENS, bucket, start_of
from tests.kernel.test_waiting_calls import lost
from tests.kernel.waits import begin, command, record, suspend

HOURLY = {**RATE, "count": 1, "seconds": 3600}


async def starts(kernel: Kernel, claimed: Item, name: str, count: int, rate: Item, **fields: Any) -> list[float | str]:
    return [await start_of(kernel, claimed, f"{name}{n}", rate, **fields) for n in range(count)]


@pytest.mark.proves("RTE-08", "G-24")
@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"count": 1000, "seconds": 1}, [0.001, 0.002]),  # as if its bucket were empty
        ({"count": 1, "seconds": 1}, [1, 2]),
        ({"count": 2, "seconds": 3600}, [1800, 3600]),
        ({"count": 1, "seconds": 3600}, [3600, "RATE_LIMITED"]),
    ],
)
async def test_raised_limit_counts_at_once(kernel: Kernel, changed: Item, expected: list[Any]) -> None:
    claimed = await kernel.running()
    assert await start_of(kernel, claimed, "c", HOURLY) == 0
    assert await starts(kernel, claimed, "d", 2, {**RATE, **changed}) == expected


@pytest.mark.proves("G-24")
async def test_calls_with_a_raised_limit_start_after_those_that_wait(kernel: Kernel) -> None:
    claimed = await kernel.running()
    assert await starts(kernel, claimed, "c", 2, HOURLY) == [0, 3600]
    assert await starts(kernel, claimed, "d", 2, {**RATE, "count": 10}, timeout_seconds=7000) == [3600.1, 3600.2]


@pytest.mark.proves("G-24")
async def test_lowered_limit_waits_no_longer_than_for_an_empty_bucket(kernel: Kernel) -> None:
    claimed = await kernel.running()
    assert set(await starts(kernel, claimed, "c", 20, {**RATE, "count": 20, "seconds": 3600})) == {0}
    assert await starts(kernel, claimed, "d", 3, {**RATE, "count": 2, "seconds": 60}) == [30, 60, 90]
    assert await starts(kernel, claimed, "e", 2, HOURLY) == [150, "RATE_LIMITED"]


@pytest.mark.proves("G-24")
async def test_rejected_call_with_another_limit_leaves_the_bucket_as_it_was(kernel: Kernel) -> None:
    claimed = await kernel.running()
    await starts(kernel, claimed, "c", 2, HOURLY)
    before = await bucket(kernel)
    assert await start_of(kernel, claimed, "d", timeout_seconds=1) == "RATE_LIMITED"
    assert await bucket(kernel) == before


@pytest.mark.proves("G-24")
async def test_each_of_two_limits_of_one_bucket_counts_the_calls_of_the_other(kernel: Kernel) -> None:
    claimed, quick = await kernel.running(), {**RATE, "count": 10, "seconds": 1}
    at, slow = list[float](), {**RATE, "count": 5, "seconds": 60}
    for n in range(40):
        start = await start_of(kernel, claimed, f"c{n}", slow if n % 4 == 3 else quick, timeout_seconds=5)
        at += [start] if isinstance(start, float) and n % 4 != 3 else []
        kernel.wait(0.02)
    assert len(at) == 30
    assert all(
        last - first + 1 <= 10 + 10 * (at[last] - at[first]) + 1e-3 for first in range(30) for last in range(first, 30)
    )


@pytest.mark.proves("G-24")
async def test_tokens_of_an_earlier_limit_come_back_by_the_present_one(kernel: Kernel) -> None:
    claimed, quick = await kernel.running(), {**TOKENS, "count": 1000, "amount": 900}
    assert await start_of(kernel, claimed, "slow", {**TOKENS, "seconds": 1000, "amount": 100}) == 0
    assert await start_of(kernel, claimed, "quick", quick) == 9
    await record(kernel, claimed, "slow", rate_tokens=50)  # half a second, not 500
    assert await start_of(kernel, claimed, "next", {**quick, "amount": 51}) == 9.01
    await record(kernel, claimed, "quick", rate_tokens=950)
    assert await start_of(kernel, claimed, "last", {**quick, "amount": 1}) == 9.52


# ── Behind a circuit breaker ──


@pytest.mark.proves("G-27", "G-24")
@pytest.mark.parametrize(("limit", "seconds"), [(None, 60), (7000, 7000)])
async def test_time_of_a_trial_begins_once_the_call_has_its_token(
    kernel: Kernel, limit: float | None, seconds: float
) -> None:
    claimed = await opened(kernel)
    assert await start_of(kernel, claimed, "c0", HOURLY) == 0
    kernel.wait(60)
    more = {"circuit_breaker": {**BREAKER, "half_open_max_calls": 2}, "timeout_seconds": limit}
    answer = await begin(kernel, claimed, "t0", "pure", rates=[HOURLY], **more)
    assert answer["rate"]["wait_seconds"] == 3540
    kernel.wait(3540 + seconds - 1)
    assert (await begin(kernel, claimed, "t1", "pure", **more))["circuit"]["is_trial"]
    await record(kernel, claimed, "t0")
    await record(kernel, claimed, "t1")
    assert (await begin(kernel, claimed, "c1", "pure", **more))["outcome"] == "fresh"
    assert await breaker(kernel) == ("closed", 0, 0, 0)


@pytest.mark.proves("G-27", "G-24")
@pytest.mark.parametrize(("limit", "seconds"), [(None, 60), (7000, 3460)])
async def test_timeout_of_a_command_includes_the_time_until_its_token(
    kernel: Kernel, limit: float | None, seconds: float
) -> None:
    claimed = await opened(kernel)
    assert await start_of(kernel, claimed, "c0", HOURLY) == 0
    kernel.wait(60)
    call = command("t0", limit, circuit_breaker=BREAKER, rates=[HOURLY])
    assert (await suspend(kernel, claimed, call))["outcome"] == "suspended"
    (trial,) = await kernel.rows("circuit_calls", "expires_at", "status = 'trial'")
    assert (trial["expires_at"] - kernel.now).total_seconds() == 3540 + seconds


@pytest.mark.proves("G-27", "G-24")
async def test_call_that_is_over_its_limit_on_its_next_owner_does_not_count_as_a_failure(kernel: Kernel) -> None:
    claimed = await kernel.running()
    fields: Item = {"rates": [HOURLY], "timeout_seconds": 1}
    assert await try_call(kernel, claimed, "c0", **fields) == "fresh"
    claimed = await lost(kernel)
    assert await try_call(kernel, claimed, "c0", **fields) == "RATE_LIMITED"
    await fail(kernel, claimed, "c0", {"code": "RATE_LIMITED", "message": "one in an hour", "recoverable": True})
    assert await kernel.rows("circuit_overview") == []


@pytest.mark.proves("G-27", "G-24")
async def test_trial_that_is_over_its_limit_on_its_next_owner_is_free_again(kernel: Kernel) -> None:
    fields: Item = {"rates": [HOURLY], "timeout_seconds": 100}
    await half_open(kernel, 1, **fields)
    assert await breaker(kernel) == ("half_open", 0, 0, 1)
    claimed = await lost(kernel)
    assert await try_call(kernel, claimed, "t0", **fields) == "RATE_LIMITED"
    assert await breaker(kernel) == ("half_open", 0, 0, 0)
    await fail(kernel, claimed, "t0", {"code": "RATE_LIMITED", "message": "one in an hour", "recoverable": True})
    assert await breaker(kernel) == ("half_open", 0, 0, 0)
