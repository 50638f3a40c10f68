"""What circuit breakers cost, and many callers at once (CB-01, CB-04, CB-06, G-27)."""

from __future__ import annotations

import asyncio
from collections import Counter
from statistics import median

import pytest

from heliograph.ledger.kernel import KERNEL
from tests.kernel.circuits import breaker, fail, half_open, opened, try_call
from tests.kernel.filled import BREAKER
from tests.kernel.kit import Connect, Item, Kernel, encoded, turn_item
from tests.kernel.waits import begin, record

WRITTEN = """select sum(n_tup_ins + n_tup_upd + n_tup_del)::bigint from pg_stat_xact_user_tables
              where schemaname = 'heliograph' and relname like 'circuit%'"""
ADVISORY = "select count(*) from pg_locks where pid = pg_backend_pid() and locktype = 'advisory'"


@pytest.mark.proves("CB-01")
async def test_success_of_a_closed_breaker_writes_and_locks_nothing(kernel: Kernel) -> None:
    claimed = await kernel.running()
    async with kernel.connection.transaction():
        assert await try_call(kernel, claimed, "c1") == "fresh"
        await record(kernel, claimed, "c1")
        assert [await kernel.connection.fetchval(query) for query in (WRITTEN, ADVISORY)] == [0, 0]


@pytest.mark.proves("CB-06")
async def test_open_breaker_answers_in_less_than_five_milliseconds(kernel: Kernel) -> None:
    """The median of many rejections, as the server measures them; a busy machine delays some, not half of them."""
    claimed = await opened(kernel)
    item = turn_item(claimed, call_id="c9", tool="charge", circuit_breaker=BREAKER)
    definition = KERNEL["begin_call"]
    given = definition.values([kernel.project, [item]], encoded)
    explained = f"explain (analyze, format json) {definition.statement(f'${len(given) + 1}::timestamptz')}"
    plans = [await kernel.connection.fetchval(explained, *given, kernel.now) for _ in range(101)]
    assert median(plan[0]["Execution Time"] for plan in plans) < 5
    assert (await begin(kernel, claimed, "c9", circuit_breaker=BREAKER))["code"] == "CIRCUIT_OPEN"


@pytest.mark.proves("CB-04", "CB-06")
async def test_caller_never_waits_for_another_that_decides_the_same_breaker(kernel: Kernel, beside: Connect) -> None:
    await opened(kernel)
    kernel.wait(60)
    one, two = await kernel.running("run_b", "turn_b"), await kernel.running("run_c", "turn_c")
    other = await beside()
    other.now = kernel.now
    async with kernel.connection.transaction():
        assert await try_call(kernel, one, "t0") == "fresh"
        answer = await asyncio.wait_for(begin(other, two, "t0", circuit_breaker=BREAKER), 5)
        assert (answer["code"], answer["circuit"]["state"]) == ("CIRCUIT_OPEN", "half_open")
    assert await try_call(other, two, "t0") == "fresh"
    assert await breaker(kernel) == ("half_open", 0, 0, 2)


@pytest.mark.proves("CB-04", "G-27")
async def test_two_callers_at_once_do_not_both_receive_the_last_trial(kernel: Kernel, beside: Connect) -> None:
    """Neither sees the uncommitted trial of the other; only the lock of the breaker keeps them apart."""
    await half_open(kernel, 1)
    one, two = await kernel.running("run_b", "turn_b"), await kernel.running("run_c", "turn_c")
    other = await beside()
    other.now = kernel.now
    settings = {**BREAKER, "half_open_max_calls": 2}
    async with kernel.connection.transaction():
        assert await try_call(kernel, one, "t1", circuit_breaker=settings) == "fresh"
        assert await try_call(other, two, "t1", circuit_breaker=settings) == "CIRCUIT_OPEN"
    assert await try_call(other, two, "t1", circuit_breaker=settings) == "CIRCUIT_OPEN"
    assert await breaker(kernel) == ("half_open", 0, 0, 2)


@pytest.mark.proves("CB-04", "G-27")
async def test_sixty_four_callers_share_the_trials_of_one_breaker(kernel: Kernel, beside: Connect) -> None:
    """Callers on eight connections, again and again half open. Every second trial fails, so the breaker never closes."""
    settings = {**BREAKER, "failure_threshold": 1, "success_threshold": 3}
    for n in range(64):
        await kernel.start(f"run_{n}", ["writer"], {f"turn_{n}": "writer"})
    turns = await kernel.claim(64, lease=3000)
    await try_call(kernel, turns[0], "first", circuit_breaker=settings)
    await fail(kernel, turns[0], "first")
    kernels = [await beside() for _ in range(8)]
    for period in range(4):
        kernel.wait(61)
        for each in kernels:
            each.now = kernel.now

        async def calls(n: int, period: int = period) -> list[Item]:
            items = [
                turn_item(turn, call_id=f"p{period}", tool="charge", circuit_breaker=settings) for turn in turns[n::8]
            ]
            return [
                {**answer, "claimed": turn}
                for turn, answer in zip(turns[n::8], await kernels[n].call("begin_call", items), strict=True)
            ]

        trials: list[Item] = []
        for _ in range(3):  # a caller that meets another one is rejected, so some try again
            answers = [answer for batch in await asyncio.gather(*map(calls, range(8))) for answer in batch]
            trials += [answer for answer in answers if answer.get("circuit", {}).get("is_trial")]
        assert Counter(answer["turn_id"] for answer in trials).total() == 3
        for trial in trials:
            await fail(kernel, trial["claimed"], f"p{period}")
