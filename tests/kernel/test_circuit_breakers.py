"""Circuit breakers: a target that fails is not called for a time, and then only for a few trials (CB-01 to CB-07, G-27)."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from tests.kernel.circuits import ERROR, breaker, fail, half_open, opened, try_call
from tests.kernel.filled import BREAKER
from tests.kernel.kit import Item, Kernel, turn_item
from tests.kernel.waits import (
    TOKEN,
    activated,
    begin,
    child,
    command,
    edges,
    failure,
    record,
    report,
    reported,
    suspend,
    suspended,
)

# ── Closed, open, half open ──


@pytest.mark.proves("CB-02", "CB-06")
async def test_failures_in_a_row_open_a_breaker_and_it_then_opens_no_wait(kernel: Kernel) -> None:
    claimed = await opened(kernel)
    answer = await begin(kernel, claimed, "c1", circuit_breaker=BREAKER)
    assert (answer["outcome"], answer["code"]) == ("rejected", "CIRCUIT_OPEN")
    assert answer["circuit"] == {
        "type": "tool_call", "target": "charge", "state": "open", "until": "2030-01-01T00:01:00+00:00",
        "retry_seconds": 60,
    }  # fmt: skip
    assert await kernel.rows("turn_waiting_tools", "tool_call_id", "tool_call_id = 'c1'") == []
    assert [call for _, _, call in await edges(kernel, "turn_a")] == [None, "f0", "f1", "f2"]
    assert await try_call(kernel, claimed, "c2", circuit_breaker={**BREAKER, "target": "other"}) == "fresh"
    assert await try_call(kernel, claimed, "c3", circuit_breaker=None) == "fresh"


async def test_later_items_of_a_call_that_an_open_breaker_rejects_are_rejected_too(kernel: Kernel) -> None:
    claimed = await opened(kernel)
    item = turn_item(claimed, call_id="c0", step_id="s", tool="charge", effect="pure")
    answers = await kernel.call("begin_call", [{**item, "circuit_breaker": BREAKER}, item])
    assert [answer.get("code") for answer in answers] == ["CIRCUIT_OPEN"] * 2
    assert await kernel.rows("turn_waiting_tools", "tool_call_id", "tool_call_id = $2", "c0") == []


async def test_rejection_by_an_open_breaker_writes_no_row(kernel: Kernel) -> None:
    claimed = await opened(kernel)
    written = (
        "select sum(n_tup_ins + n_tup_upd + n_tup_del) from pg_stat_xact_user_tables where schemaname = 'heliograph'"
    )
    async with kernel.connection.transaction():
        before = await kernel.connection.fetchval(written)
        assert await try_call(kernel, claimed, "c0") == "CIRCUIT_OPEN"
        assert await kernel.connection.fetchval(written) == before
        assert await try_call(kernel, claimed, "c1", circuit_breaker=None) == "fresh"
        assert await kernel.connection.fetchval(written) > before


@pytest.mark.proves("CB-02")
async def test_success_between_failures_keeps_a_breaker_closed(kernel: Kernel) -> None:
    claimed = await kernel.running()
    for n in range(6):
        assert await try_call(kernel, claimed, f"f{n}") == "fresh"
        await (record if n % 3 == 2 else fail)(kernel, claimed, f"f{n}")
    assert await kernel.rows("circuit_overview") == []


@pytest.mark.proves("G-27")
async def test_only_recoverable_failures_and_timeouts_count(kernel: Kernel) -> None:
    claimed = await kernel.running()
    results: list[Item] = [
        {"status": "failed", "error": {**ERROR, "recoverable": False}},
        {"status": "canceled", "error": ERROR},
        {"status": "unknown", "error": ERROR},
        {"status": "timeout", "error": {**ERROR, "recoverable": False}},
        {"status": "failed", "error": ERROR},
        {"status": "failed", "error": {"code": "TOOL_ERROR"}},
    ]
    counted = []
    for n, more in enumerate(results):
        await try_call(kernel, claimed, f"c{n}")
        await fail(kernel, claimed, f"c{n}", **more)
        counted.append(len(await kernel.rows("circuit_calls")))
    assert counted == [0, 0, 0, 1, 2, 3]


@pytest.mark.proves("CB-03", "CB-04")
async def test_breaker_is_half_open_after_its_timeout_and_admits_exactly_the_trials(kernel: Kernel) -> None:
    claimed = await opened(kernel)
    kernel.wait(59.999)
    assert await try_call(kernel, claimed, "early") == "CIRCUIT_OPEN"
    kernel.wait(0.001)
    items = [
        turn_item(claimed, call_id=f"t{n}", tool="charge", timeout_seconds=20, circuit_breaker=BREAKER)
        for n in range(9)
    ]
    answers = await kernel.call("begin_call", items)
    assert [answer["outcome"] for answer in answers] == ["fresh"] * 3 + ["rejected"] * 6
    assert answers[0]["circuit"] == {"type": "tool_call", "target": "charge", "generation": 2, "is_trial": True}
    assert answers[8]["circuit"]["state"] == "half_open"
    assert answers[8]["circuit"]["until"] == "2030-01-01T00:01:20+00:00"
    again = await kernel.call("begin_call", items[:1])  # its answer was lost
    assert again[0]["outcome"] == "fresh"
    assert await breaker(kernel) == ("half_open", 0, 0, 3)


@pytest.mark.proves("CB-05", "G-27")
async def test_successful_trials_close_a_breaker_although_one_fails(kernel: Kernel) -> None:
    claimed = await half_open(kernel, 3)
    await fail(kernel, claimed, "t0")
    await record(kernel, claimed, "t1")
    assert await try_call(kernel, claimed, "x") == "CIRCUIT_OPEN"
    await record(kernel, claimed, "t2")
    assert await try_call(kernel, claimed, "y") == "fresh"
    assert (await kernel.rows("circuit_breakers", "state"))[0]["state"] == "closed"
    assert await kernel.rows("circuit_calls") == []


@pytest.mark.proves("CB-05", "G-27")
async def test_breaker_opens_again_once_too_few_trials_are_left(kernel: Kernel) -> None:
    claimed = await half_open(kernel, 2)
    kernel.wait(5)
    await fail(kernel, claimed, "t0")
    assert await try_call(kernel, claimed, "t2") == "fresh"
    await fail(kernel, claimed, "t1")
    answer = await begin(kernel, claimed, "x", circuit_breaker=BREAKER)
    assert answer["circuit"]["until"] == "2030-01-01T00:02:05+00:00"
    await record(kernel, claimed, "t2")  # a trial of an earlier time counts no more
    assert await breaker(kernel) == ("open", 0, 0, 0)


@pytest.mark.proves("G-27")
async def test_trial_without_a_verdict_makes_room_for_another(kernel: Kernel) -> None:
    claimed = await half_open(kernel, 3)
    await fail(kernel, claimed, "t0", {**ERROR, "recoverable": False})
    await fail(kernel, claimed, "t1", status="canceled")
    assert [await try_call(kernel, claimed, f"u{n}") for n in range(3)] == ["fresh", "fresh", "CIRCUIT_OPEN"]


async def test_results_of_calls_that_a_closed_breaker_admitted_do_not_count_later(kernel: Kernel) -> None:
    claimed = await kernel.running()
    for call_id in ("old1", "old2", "f0", "f1", "f2"):
        assert await try_call(kernel, claimed, call_id) == "fresh"
    for n in range(3):
        await fail(kernel, claimed, f"f{n}")
    kernel.wait(60)
    assert await try_call(kernel, claimed, "t0") == "fresh"
    await record(kernel, claimed, "old1")
    await fail(kernel, claimed, "old2")
    assert await breaker(kernel) == ("half_open", 0, 0, 1)


# ── Lost trials ──


@pytest.mark.proves("CB-04")
async def test_trial_without_a_result_fails_at_its_deadline(kernel: Kernel) -> None:
    claimed = await half_open(kernel, 3, timeout_seconds=10)
    kernel.wait(9)
    assert await try_call(kernel, claimed, "x") == "CIRCUIT_OPEN"
    kernel.wait(1)
    answer = await begin(kernel, claimed, "x", circuit_breaker=BREAKER)
    assert answer["circuit"] == {
        "type": "tool_call", "target": "charge", "state": "open", "until": "2030-01-01T00:02:10+00:00",
        "retry_seconds": 60,
    }  # fmt: skip


@pytest.mark.proves("CB-04")
async def test_trial_in_doubt_fails_and_one_that_begins_again_remains_a_trial(kernel: Kernel) -> None:
    claimed = await half_open(kernel, 1, timeout_seconds=20)
    assert await try_call(kernel, claimed, "once", "once", timeout_seconds=20) == "fresh"
    await kernel.call("release", [turn_item(claimed)])
    claimed = await kernel.claim_one()
    kernel.wait(15)
    assert await try_call(kernel, claimed, "t0", timeout_seconds=20) == "again"
    assert await try_call(kernel, claimed, "once", "once", timeout_seconds=20) == "in_doubt"
    kernel.wait(15)
    assert await try_call(kernel, claimed, "t1") == "fresh"
    assert await try_call(kernel, claimed, "t2") == "CIRCUIT_OPEN"
    assert await breaker(kernel) == ("half_open", 1, 0, 2)


async def test_call_that_begins_again_after_its_trial_was_lost_needs_a_new_admission(kernel: Kernel) -> None:
    claimed = await half_open(kernel, 3, timeout_seconds=20)
    kernel.wait(20)
    assert await try_call(kernel, claimed, "x") == "CIRCUIT_OPEN"
    await kernel.call("release", [turn_item(claimed)])
    claimed = await kernel.claim_one()
    assert await try_call(kernel, claimed, "t0") == "CIRCUIT_OPEN"
    await fail(kernel, claimed, "t0", {**ERROR, "code": "CIRCUIT_OPEN"})
    assert await breaker(kernel) == ("open", 0, 0, 0)


@pytest.mark.proves("CB-04")
@pytest.mark.parametrize(("outcome", "counted"), [("failed", 1), ("canceled", 0)])
async def test_trial_of_a_turn_that_has_ended_makes_room(kernel: Kernel, outcome: str, counted: int) -> None:
    claimed = await half_open(kernel, 2)
    if outcome == "canceled":
        await kernel.stop("turn_a")
    else:
        await kernel.finish(claimed, outcome="failed", ends="failed")
    other = await kernel.running("run_b", "turn_b")
    settings = {**BREAKER, "success_threshold": 1}  # of a caller that tolerates two failures
    assert await try_call(kernel, other, "x", circuit_breaker=settings) == "fresh"
    assert await breaker(kernel) == ("half_open", 2 * counted, 0, 1)


async def test_call_over_budget_takes_no_trial(kernel: Kernel) -> None:
    await opened(kernel)
    kernel.wait(60)
    other = await kernel.running("run_b", "turn_b", budget={"tokens": 5})
    assert await try_call(kernel, other, "x", reserve={"tokens": 6}) == "BUDGET_EXCEEDED"
    assert await breaker(kernel) == ("half_open", 0, 0, 0)
    assert await try_call(kernel, other, "x", reserve={"tokens": 5}) == "fresh"


# ── Calls that a turn waits for ──


TOOL = {**BREAKER, "target": "search", "failure_threshold": 1}


@pytest.mark.proves("CB-06")
async def test_suspend_with_an_open_breaker_writes_nothing_and_names_the_calls(kernel: Kernel) -> None:
    await suspended(kernel, command("c1", circuit_breaker=TOOL))
    await kernel.call("report", [failure("turn_a", "c1", token=TOKEN)])
    claimed = await kernel.claim_one()
    before = await kernel.everything()
    answer = await suspend(kernel, claimed, command("c2", circuit_breaker=TOOL), command("c3"),
                           command("c4", circuit_breaker=TOOL))  # fmt: skip
    assert (answer["code"], sorted(answer["calls"]), answer["circuit"]["state"]) == (
        "CIRCUIT_OPEN",
        ["c2", "c4"],
        "open",
    )
    assert answer["calls"]["c4"] == {"message": answer["message"], "circuit": answer["circuit"]}
    after = await kernel.everything()
    assert {table for table in before if before[table] != after[table]} <= {"circuit_breakers", "circuit_calls"}
    assert (await suspend(kernel, claimed, command("c3")))["outcome"] == "suspended"


@pytest.mark.proves("CB-04", "CB-05", "CB-07")
async def test_trials_of_tools_and_delegations_are_counted_apart(kernel: Kernel) -> None:
    agent = {**TOOL, "type": "delegation", "target": "search", "success_threshold": 1, "half_open_max_calls": 1}
    delegation = {**child("d1", "critic", "turn_c", timeout=30.0), "circuit_breaker": agent}
    calls = [command("c1", circuit_breaker=TOOL), delegation]
    await suspended(kernel, *calls, signals=activated("critic"))
    kernel.wait(30)
    await kernel.sweep("waits")  # the delegation times out
    await report(kernel, "turn_a", "c1", token=TOKEN)
    (claimed,) = [each for each in await kernel.claim() if each["turn_id"] == "turn_a"]
    assert sorted(map(tuple, await kernel.rows("circuit_overview", "type, state, failures"))) == [
        ("delegation", "closed", 1)
    ]  # fmt: skip
    more = [
        {**child(f"d{n}", "critic", f"turn_{n}", n - 2, instance=f"i{n}"), "circuit_breaker": agent} for n in (2, 3)
    ]
    kernel.wait(60)
    answer = await suspend(kernel, claimed, *more, signals=activated("critic", "critic"))
    assert (answer["code"], list(answer["calls"])) == ("CIRCUIT_OPEN", ["d3"])
    assert await kernel.rows("circuit_calls") == []  # the admitted one was not made either
    answer = await suspend(kernel, claimed, more[0], signals=activated("critic"))
    assert answer["circuits"]["d2"]["is_trial"]
    other = await kernel.running("run_b", "turn_b")
    assert (await suspend(kernel, other, command("x", circuit_breaker=agent)))["code"] == "CIRCUIT_OPEN"


async def test_early_report_counts_like_any_other(kernel: Kernel) -> None:
    claimed = await kernel.running()
    await kernel.call("report", [failure("turn_a", "c1", token=TOKEN)])
    answer = await suspend(kernel, claimed, command("c1", circuit_breaker=TOOL))
    assert answer["outcome"] == "resolved"
    assert (await suspend(kernel, claimed, command("c2", circuit_breaker=TOOL)))["code"] == "CIRCUIT_OPEN"


# ── Hostile values ──


@pytest.mark.proves("CB-01")
@pytest.mark.parametrize(
    "wrong",
    [
        {"type": "halt"}, {"type": None}, {"target": ""}, {"target": "x" * 201}, {"target": 5}, {"target": {}},
        {"failure_threshold": 0}, {"failure_threshold": 2.5}, {"failure_threshold": "3"}, {"failure_threshold": None},
        {"success_threshold": -1}, {"success_threshold": 4}, {"half_open_max_calls": 1001}, {"half_open_max_calls": []},
        {"timeout_seconds": 0}, {"timeout_seconds": 1e9}, {"timeout_seconds": "60"}, {"more": 1},
    ],
)  # fmt: skip
async def test_invalid_settings_are_rejected_before_anything_is_written(kernel: Kernel, wrong: Item) -> None:
    claimed = await kernel.running()
    before = await kernel.everything()
    settings = {**BREAKER, **wrong}
    for call in (
        begin(kernel, claimed, "c1", circuit_breaker=settings),
        suspend(kernel, claimed, command("c1", circuit_breaker=settings)),
    ):
        with pytest.raises(asyncpg.PostgresError) as caught:
            await call
        assert caught.value.sqlstate == "22023"
        assert "circuit_breaker" in str(caught.value)
    assert await kernel.everything() == before


async def test_other_values_than_objects_are_no_breaker(kernel: Kernel) -> None:
    claimed = await kernel.running()
    wrongs: list[Any] = [[], "open", 5, True]
    for wrong in wrongs:
        with pytest.raises(asyncpg.InvalidParameterValueError, match="must be an object"):
            await begin(kernel, claimed, "c1", circuit_breaker=wrong)
    with pytest.raises(asyncpg.InvalidParameterValueError, match="unknown key"):
        await suspend(kernel, claimed, command("c1", circuit={"type": "tool_call"}))
    assert await reported(kernel, "turn_a", "c1") == "early"
