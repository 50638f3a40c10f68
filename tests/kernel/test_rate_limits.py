"""Rate limits: token buckets that all callers share (RTE-08, G-24)."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime, timedelta
from typing import Any

import asyncpg
import pytest

from heliograph.errors import KernelRejected
from tests.kernel.filled import BREAKER, RATE
from tests.kernel.kit import START, Connect, Item, Kernel, turn_item
from tests.kernel.waits import activated, begin, child, command, edges, record, suspend, wait

TOKENS = {"kind": "model_tokens", "name": "anthropic:*", "count": 100, "seconds": 10, "amount": 60}


async def start_of(kernel: Kernel, claimed: Item, call_id: str, *rates: Item, **fields: Any) -> float | str:
    """The seconds after the start of the test at which a call may start, or the code of its rejection."""
    answer = await begin(kernel, claimed, call_id, "pure", rates=list(rates or [RATE]), **fields)
    return str(answer["code"]) if answer["outcome"] == "rejected" else seconds(answer["rate"]["starts_at"])


def seconds(at: str) -> float:
    return (datetime.fromisoformat(at) - START).total_seconds()


async def bucket(kernel: Kernel, name: str = "search") -> asyncpg.Record:
    (row,) = await kernel.rows("rate_buckets", "*", "name = $2", name)
    return row


def most_in_window(starts: list[tuple[float, int]], length: float) -> int:
    """The largest number of tokens in a window of this length."""
    return max(sum(n for at, n in starts if begin <= at <= begin + length) for begin, _ in starts)


# ── One bucket ──


@pytest.mark.proves("RTE-08", "G-24")
async def test_full_bucket_starts_its_tokens_at_once_and_then_one_after_another(kernel: Kernel) -> None:
    claimed = await kernel.running()
    starts = [await start_of(kernel, claimed, f"c{n}") for n in range(5)]
    assert starts == [0, 0, 0.5, 1, 1.5]
    kernel.wait(60)
    assert [await start_of(kernel, claimed, f"d{n}") for n in range(3)] == [60, 60, 60.5]  # it is never more than full


@pytest.mark.proves("RTE-08", "G-24")
async def test_call_whose_token_comes_after_its_timeout_is_rejected_and_takes_none(kernel: Kernel) -> None:
    claimed = await kernel.running()
    assert [await start_of(kernel, claimed, f"c{n}", timeout_seconds=0.5) for n in range(3)] == [0, 0, 0.5]
    before = await kernel.everything()
    answer = await begin(kernel, claimed, "late", rates=[RATE], timeout_seconds=0.9, circuit_breaker=BREAKER)
    assert (answer["outcome"], answer["code"]) == ("rejected", "RATE_LIMITED")
    assert answer["rate"] == {**RATE, "retry_seconds": 0.1}
    assert answer["message"] == (
        "the rate limit of tool search is 2 in 1 s, and the call would wait 1 s, longer than its timeout: make fewer "
        "calls, or raise the limit or the timeout"
    )
    assert await kernel.everything() == before
    assert [call for _, _, call in await edges(kernel, "turn_a")] == [None, "c0", "c1", "c2"]
    kernel.wait(0.1)
    assert await start_of(kernel, claimed, "late", timeout_seconds=0.9) == 1


@pytest.mark.proves("G-24")
async def test_call_without_timeout_waits_for_an_hour_at_most(kernel: Kernel) -> None:
    claimed, hourly = await kernel.running(), {**RATE, "count": 1, "seconds": 3600}
    assert [await start_of(kernel, claimed, f"c{n}", hourly) for n in range(3)] == [0, 3600, "RATE_LIMITED"]
    assert (await begin(kernel, claimed, "c3", "pure", rates=[hourly]))["message"] == (
        "the rate limit of tool search is 1 in 3600 s, and the call would wait 7200 s, longer than the hour that a call "
        "without a timeout waits: make fewer calls, raise the limit, or set a longer timeout"
    )


@pytest.mark.proves("G-24")
async def test_call_that_needs_more_than_the_bucket_has_is_never_admitted(kernel: Kernel) -> None:
    claimed = await kernel.running()
    answer = await begin(kernel, claimed, "c1", rates=[{**TOKENS, "amount": 101}])
    assert (answer["code"], answer["rate"]["retry_seconds"]) == ("RATE_LIMITED", None)
    assert "raise the limit" in answer["message"]


@pytest.mark.proves("G-24")
async def test_call_takes_from_all_its_buckets_at_one_instant(kernel: Kernel) -> None:
    claimed, slow = await kernel.running(), {**RATE, "kind": "route", "name": "0", "count": 1, "seconds": 3}
    fast = {**RATE, "count": 3}
    assert [await start_of(kernel, claimed, f"c{n}", fast, slow) for n in range(2)] == [0, 3]
    # the fast bucket is full at 3 s, where the second call takes one of its three tokens
    kernel.wait(2.9)
    starts = [await start_of(kernel, claimed, f"d{n}", fast) for n in range(3)]
    assert starts[0] == 2.9
    taken = [(0.0, 1), (3.0, 1), *((float(at), 1) for at in starts)]
    assert most_in_window(taken, 0) <= 3


@pytest.mark.proves("G-24")
async def test_owner_that_repeats_a_commit_takes_no_second_token(kernel: Kernel) -> None:
    claimed = await kernel.running()
    starts = [await start_of(kernel, claimed, "c1") for _ in range(3)] + [await start_of(kernel, claimed, "c2")]
    assert starts == [0, 0, 0, 0]
    items = [turn_item(claimed, call_id="c3", tool="x", effect="pure", rates=[RATE]) for _ in range(2)]
    answers = await kernel.call("begin_call", items)
    assert [seconds(answer["rate"]["starts_at"]) for answer in answers] == [0.5, 0.5]
    assert await start_of(kernel, claimed, "c4") == 1


@pytest.mark.proves("G-24")
async def test_call_that_begins_again_takes_a_token_again(kernel: Kernel) -> None:
    claimed = await kernel.running()
    assert [await start_of(kernel, claimed, f"c{n}") for n in range(3)] == [0, 0, 0.5]
    await kernel.call("release", [turn_item(claimed)])
    kernel.wait(6)
    again = await kernel.claim_one()
    assert [await start_of(kernel, again, f"c{n}") for n in range(3)] == [6, 6, 6.5]
    answer = await begin(kernel, again, "c2", "pure", rates=[RATE])
    assert answer["rate"]["wait_seconds"] == 0.5


@pytest.mark.proves("G-24")
async def test_rejected_call_gives_back_its_reservation_and_its_trial(kernel: Kernel) -> None:
    claimed = await kernel.running(budget={"tool_calls": 3})
    reserve = {"tool_calls": 1}
    for n in range(2):
        assert await start_of(kernel, claimed, f"c{n}", reserve=reserve) == 0
    before = await kernel.everything()
    for n in range(3):
        code = await start_of(kernel, claimed, f"d{n}", reserve=reserve, timeout_seconds=0.1, circuit_breaker=BREAKER)
        assert code == "RATE_LIMITED"
    assert await kernel.everything() == before


# ── Calls for which a turn is suspended ──


@pytest.mark.proves("RTE-08", "G-24")
async def test_command_is_taken_and_a_child_begins_once_they_have_their_tokens(kernel: Kernel) -> None:
    claimed = await kernel.running()
    rate = {**RATE, "count": 1}
    calls = [command(f"c{n}", rates=[rate]) for n in range(2)]
    children = [
        {**child(f"d{n}", "critic", f"turn_d{n}", n), "rates": [{**rate, "kind": "agent", "name": "critic"}]}
        for n in range(2)
    ]
    answer = await suspend(kernel, claimed, *calls, *children, signals=activated("critic", "critic"))
    assert answer["outcome"] == "suspended"
    assert [row["call_id"] for row in await kernel.call("take_commands", ["search"], 9, 60.0)] == ["c0"]
    (first,) = await kernel.claim()
    assert first["turn_id"] == "turn_d0"
    await kernel.finish(first)
    assert await kernel.claim() == []
    kernel.wait(0.999)
    assert await kernel.call("take_commands", ["search"], 9, 60.0) == []
    assert await kernel.claim() == []
    kernel.wait(0.001)
    assert [row["call_id"] for row in await kernel.call("take_commands", ["search"], 9, 60.0)] == ["c1"]
    assert [turn["turn_id"] for turn in await kernel.claim()] == ["turn_d1"]


@pytest.mark.proves("RTE-08", "G-24")
async def test_suspend_takes_tokens_for_all_calls_or_for_none(kernel: Kernel) -> None:
    claimed = await kernel.running()
    before = await kernel.everything()
    other = {**RATE, "name": "other"}
    calls = [command("c1", 0.1, rates=[RATE, other]), command("c2", 0.1, rates=[RATE]), command("c3", 0.1, rates=[RATE]),
             command("c4", 0.1), command("c5", 0.1, rates=[RATE])]  # fmt: skip
    answer = await suspend(kernel, claimed, *calls)
    assert (answer["code"], list(answer["calls"]), answer["rate"]["retry_seconds"]) == (
        "RATE_LIMITED",
        ["c3", "c5"],
        0.4,
    )
    assert answer["calls"]["c3"] == {"message": answer["message"], "rate": answer["rate"]}
    assert await kernel.everything() == before
    assert (await suspend(kernel, claimed, *(calls[n] for n in (0, 1, 3))))["outcome"] == "suspended"
    assert (await wait(kernel, "turn_a", "c4"))["rate"] is None
    assert (await bucket(kernel, "other"))["full_at"] == (await bucket(kernel))["full_at"] - 500_000_000


@pytest.mark.proves("G-24")
async def test_call_that_a_turn_has_already_takes_no_token(kernel: Kernel) -> None:
    claimed = await kernel.running()
    await suspend(kernel, claimed, command("c1", rates=[RATE]))
    await kernel.call(
        "report", [{"turn_id": "turn_a", "call_id": "c1", "status": "success", "result": 1, "token": None}]
    )
    before = (await bucket(kernel))["full_at"]
    await kernel.call("sweep_waits", None)
    kernel.wait(61)
    await kernel.call("sweep_waits", None)
    (again,) = await kernel.claim()
    await suspend(kernel, again, command("c1", rates=[RATE]), command("c2"))
    assert (await bucket(kernel))["full_at"] == before


# ── Tokens of a model ──


@pytest.mark.proves("G-24")
@pytest.mark.parametrize(("used", "second"), [(0, 0), (60, 2), (20, 0), (90, 5), (None, 2)])
async def test_result_replaces_the_estimate_of_a_model_call(kernel: Kernel, used: int | None, second: float) -> None:
    claimed = await kernel.running()
    assert await start_of(kernel, claimed, "m1", TOKENS) == 0
    await record(kernel, claimed, "m1", "text", rate_tokens=used)
    assert await start_of(kernel, claimed, "m2", TOKENS) == second
    await record(kernel, claimed, "m1", "text", rate_tokens=0)  # a duplicate corrects nothing
    start = await start_of(kernel, claimed, "m3", {**TOKENS, "amount": 1})
    assert isinstance(start, float)
    assert start >= second


@pytest.mark.proves("G-24")
async def test_tokens_that_come_back_do_not_fill_a_bucket_for_which_calls_wait(kernel: Kernel) -> None:
    claimed = await kernel.running()
    whole = {**TOKENS, "amount": 100}
    assert [await start_of(kernel, claimed, f"m{n}", whole) for n in range(2)] == [0, 10]
    await record(kernel, claimed, "m0", "text", rate_tokens=0)
    assert await start_of(kernel, claimed, "m2", whole) == 20


@pytest.mark.proves("G-24")
@pytest.mark.parametrize("change", ["delete from {}", "update {} set full_at = 0, peaks = '[]'"])
async def test_tokens_that_come_back_to_a_bucket_that_is_full_fail_no_result(kernel: Kernel, change: str) -> None:
    claimed = await kernel.running()
    assert await start_of(kernel, claimed, "m1", TOKENS) == 0
    await kernel.connection.execute(f"{change.format('heliograph.rate_buckets')} where name = $1", TOKENS["name"])
    assert (await record(kernel, claimed, "m1", "text", rate_tokens=0))["outcome"] == "ok"
    assert (await bucket(kernel, str(TOKENS["name"])))["full_at"] == 0


@pytest.mark.proves("G-24")
@pytest.mark.parametrize("wrong", [-1, 0.5, "7", True, 2_000_000_000])
async def test_invalid_numbers_of_used_tokens_are_rejected(kernel: Kernel, wrong: Any) -> None:
    claimed = await kernel.running()
    with pytest.raises((asyncpg.InvalidParameterValueError, KernelRejected), match="rate_tokens"):
        await record(kernel, claimed, "m1", "text", rate_tokens=wrong)


# ── Many callers ──


@pytest.mark.proves("RTE-08", "G-24")
async def test_sixty_four_callers_of_four_workers_never_get_one_token_too_many(kernel: Kernel, beside: Connect) -> None:
    """Each worker's clock differs. Some calls are of several buckets, which they name in different orders."""
    rates = [{**RATE, "name": name, "count": 7} for name in ("a", "b", "c")]
    for n in range(64):
        await kernel.start(f"run_{n}", ["writer"], {f"turn_{n}": "writer"})
    turns = await kernel.claim(64, lease=3000)
    workers = [await beside() for _ in range(4)]
    for n, worker in enumerate(workers):
        worker.now = kernel.now + timedelta(seconds=n / 10)
    starts = dict[str, list[tuple[float, int]]]()

    async def call(n: int, period: int) -> None:
        own = [rates[(n + place) % 3] for place in range(1 + n % 3)]
        for turn in turns[n::4]:
            item = turn_item(turn, call_id=f"p{period}", tool="x", timeout_seconds=5.0, rates=own)
            (answer,) = await workers[n].call("begin_call", [item])
            if answer["outcome"] == "fresh":
                for rate in own:
                    starts.setdefault(str(rate["name"]), []).append((seconds(answer["rate"]["starts_at"]), 1))

    for period in range(3):
        await asyncio.gather(*(call(n, period) for n in range(4)))
        for worker in workers:
            worker.wait(1.5)
    for name, taken in starts.items():
        for length in (0.0, 0.5, 1.0, 3.0):
            assert most_in_window(taken, length) <= 7 + length * 7, (name, length)
        assert len(taken) > 30, name  # and none is lost


@pytest.mark.proves("G-24")
async def test_call_without_limits_locks_no_bucket(kernel: Kernel, beside: Connect) -> None:
    claimed = await kernel.running()
    assert await start_of(kernel, claimed, "c1") == 0
    other = await beside()
    await other.start("run_b", ["writer"], {"turn_b": "writer"})
    (running,) = await other.claim()
    async with kernel.connection.transaction():
        assert await start_of(kernel, claimed, "c2") == 0
        await other.connection.execute("set lock_timeout = '0.3s'")
        assert (await begin(other, running, "c1", "pure"))["outcome"] == "fresh"
        assert (await record(other, running, "c1"))["outcome"] == "ok"
        with pytest.raises(asyncpg.LockNotAvailableError):
            await start_of(other, running, "c2")


# ── Hostile values ──


@pytest.mark.proves("G-24")
@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "halt"}, {"kind": None}, {"name": ""}, {"name": "x" * 201}, {"name": 5}, {"count": 0}, {"count": 2.5},
        {"count": "3"}, {"count": 10**9 + 1}, {"seconds": 3601}, {"seconds": None}, {"amount": 0}, {"amount": []}, {"more": 1},
    ],
)  # fmt: skip
async def test_invalid_rates_are_rejected_before_anything_is_written(kernel: Kernel, wrong: Item) -> None:
    claimed = await kernel.running()
    before = await kernel.everything()
    rates = [{**RATE, **wrong}]
    for call in (begin(kernel, claimed, "c1", rates=rates), suspend(kernel, claimed, command("c1", rates=rates))):
        with pytest.raises(asyncpg.InvalidParameterValueError, match="rates"):
            await call
    assert await kernel.everything() == before


def taken(**wrong: Any) -> str:
    """The column `rate` of a call, with a wrong value in it."""
    return json.dumps({"starts_at": "2026-01-01T00:00:00+00:00", "rates": [{**RATE, **wrong}]})


@pytest.mark.proves("S22", "G-24")
async def test_values_that_would_fail_the_calls_of_others_are_rejected_by_the_tables(kernel: Kernel) -> None:
    claimed = await kernel.running()
    assert await start_of(kernel, claimed, "c1") == 0
    before = await kernel.everything()
    peaks = ["5", "{}", "null", "[5]", "[{}]", "[[1]]", '[[1, "2"]]', "[[1, null]]", "[[1, 2.5]]", "[[-1, 2]]", "[[1, 1e30]]",
             "[[1e5000, 1]]", "[[[1], 2]]", f"[{', '.join(['[1, 1]'] * 101)}]"]  # fmt: skip
    rates = ["5", "{}", "[]", '{"rates": []}', '{"starts_at": "2026-01-01T00:00:00Z", "rates": {}}', '{"starts_at": "soon", "rates": []}',
             '{"starts_at": "2026-01-01T00:00:00Z", "rates": [[]]}', '{"starts_at": "2026-02-30T00:00:00Z", "rates": []}',
             '{"starts_at": 5, "rates": []}', '{"starts_at": "-infinity", "rates": []}', taken(count=0), taken(count="3"), taken(count=[3]),
             taken(count=None), taken(seconds=0), taken(seconds=1e300), taken(amount=0.5), taken(amount=-1), taken(kind="halt"),
             taken(name=["search"])]  # fmt: skip
    for table, column, values in (("rate_buckets", "peaks", peaks), ("turn_waiting_tools", "rate", rates)):
        for value in values:
            with pytest.raises(asyncpg.PostgresError):
                await kernel.harm(f"update {table} set {column} = '{value}' where project_id = $1")
    assert await kernel.everything() == before
    await kernel.harm(f"update turn_waiting_tools set rate = '{taken()}' where project_id = $1")


@pytest.mark.proves("G-24")
async def test_any_number_of_used_tokens_delays_later_calls_and_fails_none(kernel: Kernel) -> None:
    claimed = await kernel.running()
    slow = {**TOKENS, "count": 100, "seconds": 3600, "amount": 1}
    calls = [f"m{n}" for n in range(80)]
    assert {await start_of(kernel, claimed, call, slow) for call in calls} == {0}
    for call in calls:
        assert (await record(kernel, claimed, call, rate_tokens=10**9))["outcome"] == "ok"
    assert await start_of(kernel, claimed, "last", slow) == "RATE_LIMITED"


async def test_other_values_than_distinct_rates_are_rejected(kernel: Kernel) -> None:
    claimed = await kernel.running()
    wrongs: list[Any] = [{}, "10/s", 5, True, [5], [RATE, {**RATE, "count": 5}], [RATE] * 9]
    for wrong in wrongs:
        with pytest.raises(asyncpg.InvalidParameterValueError, match="rates"):
            await begin(kernel, claimed, "c1", rates=wrong)
    with pytest.raises(asyncpg.InvalidParameterValueError, match="unknown key"):
        await suspend(kernel, claimed, command("c1", rate={"starts_at": "2020-01-01"}))
