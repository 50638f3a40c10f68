"""Pruning of circuit breakers and rate limits: rows of targets that nobody calls any more disappear."""

from __future__ import annotations

import asyncio
import random

from tests.kernel.circuits import breaker, fail, half_open, opened, try_call
from tests.kernel.filled import BREAKER, RATE
from tests.kernel.kit import Connect, Kernel
from tests.kernel.test_prune import DAY, NOTHING, prune
from tests.kernel.test_rate_limits import start_of
from tests.kernel.waits import begin, record


async def test_targets_that_nobody_has_called_for_thirty_days_more_are_forgotten(kernel: Kernel) -> None:
    claimed = await opened(kernel)
    for n, name in enumerate("ab"):
        await try_call(kernel, claimed, f"c{n}", circuit_breaker={**BREAKER, "target": name})
        await fail(kernel, claimed, f"c{n}")
        assert await start_of(kernel, claimed, f"r{n}", {**RATE, "name": name}) == 0
    kernel.wait(30 * DAY)
    assert await prune(kernel) == NOTHING
    assert await start_of(kernel, claimed, "r2", {**RATE, "name": "a"}) == 30 * DAY
    kernel.wait(2 * DAY)
    assert await prune(kernel, limit=1) == NOTHING | {"breakers": 2, "rates": 1, "more": True}
    assert await prune(kernel) == NOTHING | {"breakers": 1}
    assert await kernel.rows("circuit_overview", "target") == []
    assert [row["name"] for row in await kernel.rows("rate_buckets", "name")] == ["a"]
    assert await try_call(kernel, claimed, "again") == "fresh"


async def test_half_open_breaker_whose_trials_ended_or_were_lost_long_ago_is_forgotten(kernel: Kernel) -> None:
    claimed = await half_open(kernel, 2)
    await fail(kernel, claimed, "t0")
    kernel.wait(31 * DAY)
    assert await prune(kernel) == NOTHING
    assert await breaker(kernel) == ("half_open", 1, 0, 1)
    kernel.wait(DAY)
    assert await prune(kernel) == NOTHING | {"breakers": 3}  # the breaker, its failure and its lost trial
    assert await kernel.rows("circuit_overview", "target") == []
    await fail(kernel, claimed, "t1")  # a late result counts nowhere
    assert await kernel.rows("circuit_overview", "target") == []
    assert await try_call(kernel, claimed, "again") == "fresh"


async def test_half_open_breaker_with_a_recent_trial_remains(kernel: Kernel) -> None:
    claimed = await half_open(kernel, 1)
    kernel.wait(40 * DAY)
    assert await try_call(kernel, claimed, "t1") == "fresh"
    assert await prune(kernel) == NOTHING
    assert await breaker(kernel) == ("half_open", 1, 0, 1)


async def test_half_open_breaker_remains_while_an_admission_or_a_result_is_not_committed(
    kernel: Kernel, beside: Connect
) -> None:
    claimed = await half_open(kernel, 1)
    kernel.wait(40 * DAY)
    other = await beside()
    other.now = kernel.now
    async with other.connection.transaction():
        assert await try_call(other, claimed, "t1") == "fresh"
        assert await prune(kernel) == NOTHING
    assert await breaker(kernel) == ("half_open", 1, 0, 1)
    kernel.wait(40 * DAY)
    other.now = kernel.now
    async with other.connection.transaction():
        await record(other, claimed, "t1")
        assert await prune(kernel) == NOTHING
    assert await breaker(kernel) == ("half_open", 1, 1, 0)


async def test_call_of_a_half_open_breaker_that_is_being_pruned_is_rejected_and_then_made(
    kernel: Kernel, beside: Connect
) -> None:
    await half_open(kernel, 1)
    kernel.wait(40 * DAY)
    later = await kernel.running("run_later", "turn_later")
    other = await beside()
    other.now = kernel.now
    async with other.connection.transaction():
        assert await prune(other) == NOTHING | {"breakers": 2}
        assert await try_call(kernel, later, "c1") == "CIRCUIT_OPEN"
    assert await try_call(kernel, later, "c1") == "fresh"


async def test_breaker_with_a_failure_that_is_not_committed_yet_remains(kernel: Kernel, beside: Connect) -> None:
    claimed = await opened(kernel)
    kernel.wait(60)
    for n in range(2):
        assert await try_call(kernel, claimed, f"t{n}") == "fresh"
    for n in range(2):
        await record(kernel, claimed, f"t{n}")
    assert await try_call(kernel, claimed, "c0") == "fresh"
    assert await breaker(kernel) == ("closed", 0, 0, 0)
    kernel.wait(40 * DAY)
    other = await beside()
    other.now = kernel.now
    async with other.connection.transaction():
        await fail(other, claimed, "c0")
        assert await prune(kernel) == NOTHING
    assert await breaker(kernel) == ("closed", 1, 0, 0)


async def test_call_whose_bucket_is_pruned_meanwhile_gets_its_token(kernel: Kernel, beside: Connect) -> None:
    claimed = await kernel.running()
    assert await start_of(kernel, claimed, "c0") == 0
    other = await beside()
    async with other.connection.transaction():
        await other.connection.execute("delete from heliograph.rate_buckets where project_id = $1", kernel.project)
        waiting = asyncio.create_task(begin(kernel, claimed, "c1", "pure", rates=[RATE]))
        done, _ = await asyncio.wait([waiting], timeout=0.2)
        assert not done
    assert (await waiting)["rate"]["wait_seconds"] == 0
    assert len(await kernel.rows("rate_buckets", "name")) == 1


async def test_calls_whose_buckets_disappear_wait_for_each_other_in_one_order(kernel: Kernel, beside: Connect) -> None:
    turns = [await kernel.running(f"run_{n}", f"turn_{n}") for n in range(4)]
    rates, dice = [{**RATE, "name": name, "count": 1000} for name in "abcde"], random.Random(1)
    remover, *callers = [await beside() for _ in range(5)]
    is_done = asyncio.Event()

    async def call(caller: Kernel, place: int) -> None:
        for n in range(25):
            answer = await begin(caller, turns[place], f"c{n}", "pure", rates=dice.sample(rates, 3))
            assert answer["outcome"] == "fresh"

    async def remove() -> None:
        delete = "delete from heliograph.rate_buckets where project_id = $1 and name = $2"
        while not is_done.is_set():
            await remover.connection.execute(delete, remover.project, dice.choice("abcde"))

    removing = asyncio.create_task(remove())
    try:
        await asyncio.gather(*(call(caller, place) for place, caller in enumerate(callers)))
    finally:
        is_done.set()
        await removing
