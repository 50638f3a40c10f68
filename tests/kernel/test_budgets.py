"""Budgets of one turn: reserved before a call, settled after it, and never above the limit."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from tests.kernel.kit import Item, Kernel, turn_item
from tests.kernel.test_prune import DAY, prune
from tests.kernel.waits import activated, begin, child, record, reported, suspend, tool, wait

TOKENS = {"tokens": 100}


async def budget(kernel: Kernel, owner: str = "turn_a") -> dict[str, tuple[int, int, int]]:
    """{kind: (used, reserved, over)} of one owner."""
    rows = await kernel.rows("budgets", "kind, used, reserved, overspent", "turn_id = $2", owner)
    return {row["kind"]: (row["used"], row["reserved"], row["overspent"]) for row in rows}


async def outcome(kernel: Kernel, claimed: Item, call_id: str, tokens: int, **fields: Any) -> str:
    answer = await begin(kernel, claimed, call_id, reserve={"tokens": tokens}, **fields)
    return str(answer.get("code", answer["outcome"]))


async def test_call_reserves_its_maximum_and_settles_its_usage(kernel: Kernel) -> None:
    claimed = await kernel.running(budget={"tokens": 100, "micros": 5000, "model_calls": 3})
    reserve = {"tokens": 60, "micros": 1000, "model_calls": 1, "tool_calls": 7}  # the turn has no limit of tool calls
    assert await begin(kernel, claimed, "c1", reserve=reserve) == {
        "turn_id": "turn_a",
        "call_id": "c1",
        "outcome": "fresh",
    }
    assert await budget(kernel) == {"tokens": (0, 60, 0), "micros": (0, 1000, 0), "model_calls": (0, 1, 0)}
    assert (await record(kernel, claimed, "c1", used={"tokens": 25, "micros": 400}))["outcome"] == "ok"
    assert await budget(kernel) == {"tokens": (25, 0, 0), "micros": (400, 0, 0), "model_calls": (1, 0, 0)}
    assert (await record(kernel, claimed, "c1", used={"tokens": 25}))["outcome"] == "duplicate"
    assert (await budget(kernel))["tokens"] == (25, 0, 0)


async def test_call_beyond_its_budget_is_rejected_and_writes_nothing(kernel: Kernel) -> None:
    claimed = await kernel.running(budget=TOKENS)
    assert await outcome(kernel, claimed, "c1", 70) == "fresh"
    before = await kernel.everything()
    refused = await begin(kernel, claimed, "c2", reserve={"tokens": 31})
    assert refused == {
        "turn_id": "turn_a", "call_id": "c2", "outcome": "rejected", "code": "BUDGET_EXCEEDED",
        "message": "the budget of turn turn_a has 30 of 100 tokens left; this call needs 31: start the turn with a larger budget",
        "budget": {"turn_id": "turn_a", "kind": "tokens", "amount_max": 100, "used": 0, "reserved": 70, "overspent": 0},
    }  # fmt: skip
    assert await kernel.everything() == before
    assert await outcome(kernel, claimed, "c2", 30) == "fresh"
    assert await outcome(kernel, claimed, "c3", 0) == "fresh"  # no tokens remain, and the call reserves none


async def test_calls_of_one_batch_share_the_remaining_budget_in_order(kernel: Kernel) -> None:
    claimed = await kernel.running(budget=TOKENS)
    requests = [("c1", 60), ("c2", 50), ("c3", 40), ("c2", 50), ("c4", None)]
    items = [
        turn_item(claimed, call_id=call_id, tool="x", reserve=None if tokens is None else {"tokens": tokens})
        for call_id, tokens in requests
    ]
    answers = await kernel.call("begin_call", items)
    assert [answer["outcome"] for answer in answers] == ["fresh", "rejected", "fresh", "rejected", "fresh"]
    assert await budget(kernel) == {"tokens": (0, 100, 0)}
    assert [row["tool_call_id"] for row in await kernel.rows("turn_waiting_tools", "tool_call_id")] == [
        "c1",
        "c3",
        "c4",
    ]


async def test_stale_call_does_not_block_others_of_its_batch(kernel: Kernel) -> None:
    claimed = await kernel.running(budget=TOKENS)
    item = turn_item(claimed, call_id="c1", tool="x", reserve={"tokens": 60})
    answers = await kernel.call("begin_call", [item | {"epoch": 1}, item])
    assert [answer["outcome"] for answer in answers] == ["stale", "fresh"]
    assert (await wait(kernel, "turn_a", "c1"))["reserved"] == {"tokens": 60}


async def test_call_repeated_after_lost_replies_reserves_once(kernel: Kernel) -> None:
    claimed = await kernel.running(budget=TOKENS)
    for _ in range(3):
        assert await outcome(kernel, claimed, "c1", 60) == "fresh"
    assert await budget(kernel) == {"tokens": (0, 60, 0)}


async def test_usage_beyond_its_reserve_takes_the_remainder_and_records_the_excess(kernel: Kernel) -> None:
    claimed = await kernel.running(budget=TOKENS)
    await outcome(kernel, claimed, "c1", 50)
    await outcome(kernel, claimed, "c2", 40)
    await record(kernel, claimed, "c1", used={"tokens": 75})
    assert await budget(kernel) == {"tokens": (60, 40, 15)}
    await record(kernel, claimed, "c2", used={"tokens": 0})
    assert await budget(kernel) == {"tokens": (60, 0, 15)}
    assert await outcome(kernel, claimed, "c3", 26) == "BUDGET_EXCEEDED"  # the overspent amount counts first
    assert await outcome(kernel, claimed, "c3", 25) == "fresh"


@pytest.mark.parametrize(("status", "used", "counted"), [
    ("success", None, 60), ("failed", None, 60), ("timeout", None, 60), ("unknown", None, 60),
    ("canceled", None, 0), ("canceled", {"tokens": 5}, 5), ("failed", {"tokens": 7}, 7),
], ids=str)  # fmt: skip
async def test_unreported_usage_counts_as_reserved_unless_the_call_did_not_happen(
    kernel: Kernel, status: str, used: Item | None, counted: int
) -> None:
    claimed = await kernel.running(budget=TOKENS)
    await outcome(kernel, claimed, "c1", 60)
    await record(kernel, claimed, "c1", status=status, error={"code": "E"}, used=used)
    assert await budget(kernel) == {"tokens": (counted, 0, 0)}


@pytest.mark.parametrize("how", ["finish", "stop", "expiry", "attempts"])
async def test_ended_turn_has_no_reservation_for_any_outcome(kernel: Kernel, how: str) -> None:
    claimed = await kernel.running(budget=TOKENS, max_attempts=1)
    await outcome(kernel, claimed, "c1", 60, effect="pure")
    await outcome(kernel, claimed, "c2", 10)
    await record(kernel, claimed, "c2", used={"tokens": 4})
    if how == "finish":
        assert (await kernel.finish(claimed, ends="success"))["outcome"] == "ok"
    elif how == "stop":
        await kernel.stop("turn_a")
    else:
        kernel.wait(1e6)
        await kernel.sweep("expired" if how == "expiry" else "leases")
    assert (await kernel.turn("turn_a"))["state"] == "done"
    assert await budget(kernel) == {
        "tokens": (64, 0, 0)
    }  # c1 began: it may have cost something, with or without an effect


@pytest.mark.parametrize(("effect", "answer"), [("idempotent", "again"), ("once", "in_doubt")])
async def test_call_of_a_lost_worker_counts_and_its_repetition_counts_again(
    kernel: Kernel, effect: str, answer: str
) -> None:
    first = await kernel.running(budget=TOKENS)
    await outcome(kernel, first, "c1", 60, effect=effect)
    kernel.wait(31)
    await kernel.sweep("leases")
    second = await kernel.claim_one()
    assert await outcome(kernel, second, "c1", 30, effect=effect) == answer
    assert await budget(kernel) == {"tokens": (60, 30 * (answer == "again"), 0)}


@pytest.mark.proves("S12")
@pytest.mark.parametrize("effect", ["idempotent", "transactional"])
async def test_tool_call_counts_once_for_any_number_of_attempts(kernel: Kernel, effect: str) -> None:
    claimed = await kernel.running(budget={"tool_calls": 1, "tokens": 100})
    reserve = {"tool_calls": 1, "tokens": 30}
    assert (await begin(kernel, claimed, "c1", effect, reserve=reserve))["outcome"] == "fresh"
    for tries in (1, 2):
        kernel.wait(31)
        await kernel.sweep("leases")
        claimed = await kernel.claim_one()
        assert (await begin(kernel, claimed, "c1", effect, reserve=reserve))["outcome"] == "again"
        assert await budget(kernel) == {
            "tool_calls": (1, 0, 0),
            "tokens": (30 * tries, 30, 0),
        }  # a question costs each time
    assert (await begin(kernel, claimed, "c2", reserve={"tool_calls": 1}))["code"] == "BUDGET_EXCEEDED"
    assert (await record(kernel, claimed, "c1", used={"tokens": 5}))["outcome"] == "ok"
    assert await budget(kernel) == {"tool_calls": (1, 0, 0), "tokens": (65, 0, 0)}
    assert await kernel.checks() == []


@pytest.mark.proves("S12")
@pytest.mark.parametrize("other", [1, 2])
async def test_tool_call_counts_once_also_after_a_rejection(kernel: Kernel, other: int) -> None:
    claimed = await kernel.running(budget={"tool_calls": 1, "tokens": 100})
    assert (await begin(kernel, claimed, "c1", "pure", reserve={"tool_calls": 1, "tokens": 60}))["outcome"] == "fresh"
    for _ in range(other):  # rejected for one owner, or for two
        kernel.wait(31)
        await kernel.sweep("leases")
        claimed = await kernel.claim_one()
        refused = await begin(kernel, claimed, "c1", "pure", reserve={"tool_calls": 1, "tokens": 60})
        assert (refused["code"], refused["budget"]["kind"]) == ("BUDGET_EXCEEDED", "tokens")
    assert await budget(kernel) == {"tool_calls": (1, 0, 0), "tokens": (60, 0, 0)}
    for expected in ("again", "fresh"):  # the second time a lost reply
        begun = await begin(kernel, claimed, "c1", "pure", reserve={"tool_calls": 1, "tokens": 30})
        assert begun["outcome"] == expected
        assert await budget(kernel) == {"tool_calls": (1, 0, 0), "tokens": (60, 30, 0)}
    assert await kernel.checks() == []
    assert (await record(kernel, claimed, "c1", used={"tokens": 5}))["outcome"] == "ok"
    assert await budget(kernel) == {"tool_calls": (1, 0, 0), "tokens": (65, 0, 0)}
    assert await kernel.checks() == []


@pytest.mark.proves("S12")
async def test_remote_tools_count_when_called_and_one_call_too_many_opens_none(
    kernel: Kernel,
) -> None:
    claimed = await kernel.running(budget={"tool_calls": 3, "tokens": 9})
    assert claimed["budget"] == {"tool_calls": 3, "tokens": 9}
    await begin(kernel, claimed, "m1", reserve={"tool_calls": 1, "tokens": 5})
    person = {**tool("a"), "kind": "human"}
    before = await kernel.everything()
    refused = await suspend(kernel, claimed, person, *(tool(f"c{n}") for n in range(3)))
    assert (refused["outcome"], refused["code"]) == ("rejected", "BUDGET_EXCEEDED")
    assert refused["budget"] == {
        "turn_id": "turn_a", "kind": "tool_calls", "amount_max": 3, "used": 0, "reserved": 1, "overspent": 0,
    }  # fmt: skip
    assert await kernel.everything() == before
    assert (await suspend(kernel, claimed, person, tool("c0"), tool("c1")))["outcome"] == "suspended"
    assert (await budget(kernel))["tool_calls"] == (2, 1, 0)


async def test_repeated_call_of_a_turn_is_not_counted_again(kernel: Kernel) -> None:
    claimed = await kernel.running(budget={"tool_calls": 1})
    await reported(kernel, "turn_a", "c0")
    open_call = tool("c0", token=None)
    for _ in range(2):  # its result arrived early, so the turn keeps running and may repeat the call
        assert (await suspend(kernel, claimed, open_call))["outcome"] == "resolved"
        assert await budget(kernel) == {"tool_calls": (1, 0, 0)}


async def test_turn_without_a_budget_or_a_reservation_settles_no_reservation(
    kernel: Kernel,
) -> None:
    free = await kernel.running()
    assert await outcome(kernel, free, "c1", 10**15) == "fresh"
    assert (await wait(kernel, "turn_a", "c1"))["reserved"] is None
    assert (await record(kernel, free, "c1", used={"tokens": 5}))["outcome"] == "ok"
    bound = await kernel.running("run_b", "turn_b", budget=TOKENS)
    assert (await begin(kernel, bound, "c1"))["outcome"] == "fresh"
    await record(kernel, bound, "c1", used={"tokens": 130})
    assert await budget(kernel, "turn_b") == {"tokens": (100, 0, 30)}  # the actual usage is not hidden


async def test_turn_without_a_budget_reads_no_budget_rows(kernel: Kernel) -> None:
    async with kernel.connection.transaction():
        claimed = await kernel.running()
        await outcome(kernel, claimed, "c1", 5)
        await record(kernel, claimed, "c1")
        grandchild = child("g", "critic", "turn_b", 0, instance="b")
        await suspend(kernel, claimed, grandchild, signals=activated("critic"))
        await kernel.finish(await kernel.claim_one(), version=(await kernel.run("run_a"))["version"])
        looks = await kernel.connection.fetchval(
            "select coalesce(sum(seq_scan + coalesce(idx_scan, 0)), 0) from pg_stat_xact_user_tables where relname = 'budgets'"
        )
    assert looks == 0


@pytest.mark.parametrize("wrong", [
    {}, [], 5, {"tokens": -1}, {"tokens": 1.5}, {"tokens": "5"}, {"tokens": None}, {"hours": 5}, {"tokens": 10**16},
], ids=str)  # fmt: skip
async def test_invalid_amount_is_rejected_by_its_field_name(kernel: Kernel, wrong: Any) -> None:
    claimed = await kernel.running(budget=TOKENS)
    before = await kernel.everything()
    with pytest.raises(asyncpg.DataError, match="reserve has"):
        await begin(kernel, claimed, "c1", reserve=wrong)
    with pytest.raises(asyncpg.DataError, match="used has"):
        await record(kernel, claimed, "c1", used=wrong)
    with pytest.raises(asyncpg.DataError, match="a budget has"):
        await kernel.enqueue("run_a", "critic", "turn_b", budget=wrong)
    with pytest.raises(asyncpg.DataError, match="the budget of a child has"):
        await suspend(kernel, claimed, child("c", "critic", "turn_c", budget=wrong), signals=activated("critic"))
    assert await kernel.everything() == before


async def test_pruning_a_turn_removes_its_budget(kernel: Kernel) -> None:
    await kernel.finish(await kernel.running(budget=TOKENS), ends="success")
    await kernel.publish()
    kernel.wait(2 * DAY)
    await prune(kernel)
    assert await kernel.rows("budgets") == []


async def test_doctor_finds_an_orphaned_reservation(kernel: Kernel) -> None:
    claimed = await kernel.running(budget=TOKENS)
    await outcome(kernel, claimed, "c1", 60)
    assert await kernel.checks() == []
    kernel.is_corrupted = True
    await kernel.harm("update budgets set reserved = 61 where project_id = $1")
    assert await kernel.checks() == ["U1"]
    await kernel.harm("update budgets set reserved = 60 where project_id = $1")
    await kernel.harm("update agent_turns set budgets = null where project_id = $1")
    assert sorted(await kernel.checks()) == ["O13", "U1"]
    await kernel.harm("update agent_turns set budgets = '{turn_a}' where project_id = $1")
    await record(kernel, claimed, "c1")
    await kernel.harm("""update turn_waiting_tools set reserved = '{"micros": 1}' where project_id = $1""")
    assert await kernel.checks() == ["U2"]


@pytest.mark.parametrize("change", ["used = 101", "reserved = 101", "used = 60, reserved = 60", "reserved = -1"])
async def test_constraint_rejects_a_budget_above_its_limit(kernel: Kernel, change: str) -> None:
    await kernel.running(budget=TOKENS)
    with pytest.raises(asyncpg.CheckViolationError):
        await kernel.harm(f"update budgets set {change} where project_id = $1")
