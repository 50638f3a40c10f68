"""Shared budgets: a turn, its children and its messages use one budget together, and never exceed it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.kernel.kit import Connect, Item, Kernel, turn_item
from tests.kernel.test_budgets import TOKENS, budget, outcome
from tests.kernel.waits import activated, begin, child, record, suspend, suspended


async def family(kernel: Kernel, count: int = 2, **fields: Any) -> list[Item]:
    """turn_a with a budget of 100 tokens, suspended until its children have ended, and the claimed children."""
    calls = [child(f"c{n}", "critic", f"turn_{n}", n, instance=f"i{n}", **fields) for n in range(count)]
    await suspended(kernel, *calls, signals=activated(*["critic"] * count), limits={"budget": TOKENS})
    return await kernel.claim(count)


async def test_call_without_budget_is_rejected_until_some_is_free(kernel: Kernel) -> None:
    first = await kernel.running(budget=TOKENS)
    await outcome(kernel, first, "c1", 60, effect="pure")
    kernel.wait(31)
    await kernel.sweep("leases")
    second = await kernel.claim_one()
    for _ in range(2):
        assert await outcome(kernel, second, "c1", 50, effect="pure") == "BUDGET_EXCEEDED"
    assert await budget(kernel) == {"tokens": (60, 0, 0)}
    assert await outcome(kernel, second, "c1", 40, effect="pure") == "again"
    assert await budget(kernel) == {"tokens": (60, 40, 0)}


@pytest.mark.proves("S12")
async def test_children_share_the_budget_of_their_parent_and_have_their_own(kernel: Kernel) -> None:
    first, second = await family(kernel, budget={"tokens": 70, "tool_calls": 2})
    assert await outcome(kernel, first, "m1", 71) == "BUDGET_EXCEEDED"
    assert await outcome(kernel, first, "m1", 70) == "fresh"
    refused = await begin(kernel, second, "m1", reserve={"tokens": 31})
    assert refused["budget"]["turn_id"] == "turn_a"
    assert await outcome(kernel, second, "m1", 30) == "fresh"
    await record(kernel, first, "m1", used={"tokens": 20})
    assert await budget(kernel) == {"tokens": (20, 30, 0)}
    assert await budget(kernel, first["turn_id"]) == {"tokens": (20, 0, 0), "tool_calls": (0, 0, 0)}
    grandchild = child("g", "critic", "turn_deep", 0, instance="deep")
    assert (await suspend(kernel, first, grandchild, signals=activated("critic")))["outcome"] == "suspended"
    deep = await kernel.claim_one()
    assert deep["turn_id"] == "turn_deep"
    assert sorted((await kernel.turn("turn_deep"))["budgets"]) == sorted(["turn_a", first["turn_id"]])
    assert await outcome(kernel, deep, "m1", 51) == "BUDGET_EXCEEDED"
    assert await outcome(kernel, deep, "m1", 50) == "fresh"
    assert (await budget(kernel))["tokens"] == (20, 80, 0)


async def test_claim_returns_the_smallest_remaining_budget(kernel: Kernel) -> None:
    first, second = await family(kernel, budget={"tokens": 70, "tool_calls": 2})
    assert first["budget"] == second["budget"] == {"tokens": 70, "tool_calls": 2}
    await outcome(kernel, first, "m1", 60)
    await kernel.call("release", [turn_item(second)])
    assert (await kernel.claim_one())["budget"] == {"tokens": 40, "tool_calls": 2}
    assert (await kernel.running("run_b", "turn_b"))["budget"] is None


async def test_message_has_its_own_budget_and_that_of_its_parent_turn(kernel: Kernel) -> None:
    await kernel.running(budget=TOKENS)
    await kernel.start("run_b", ["writer"], {})
    await kernel.enqueue("run_a", "critic", "turn_asked", parent_turn_id="turn_a", budget={"micros": 5})
    await kernel.enqueue("run_b", "writer", "turn_far", parent_turn_id="turn_a")
    assert (await kernel.turn("turn_asked"))["budgets"] == ["turn_a", "turn_asked"]
    assert (await kernel.turn("turn_far"))["budgets"] is None
    again = [(await kernel.enqueue("run_a", "critic", "turn_asked", budget=given))["outcome"]
             for given in ({"micros": 5}, {"micros": 6}, None)]  # fmt: skip
    assert again == ["duplicate", "conflict", "conflict"]


# ── Many at once ──────────────────────────────────────────────────────────────────────────────

CHILDREN = 1000
MOST = 617  # of 1,000 that each reserve one


@pytest.mark.more
@pytest.mark.proves("S12")
@pytest.mark.parametrize("postgres", [18], indirect=True)
async def test_thousand_children_use_exactly_the_budget_of_their_parent(kernel: Kernel, beside: Connect) -> None:
    calls = [child(f"c{n}", "critic", f"turn_{n}", n, instance=f"i{n}") for n in range(CHILDREN)]
    limits = {"budget": {"tool_calls": MOST, "tokens": 10 * MOST}}
    await suspended(kernel, *calls, signals=activated(*["critic"] * CHILDREN), limits=limits)
    await kernel.call("set_limits", {"waits_max": CHILDREN})
    children = await kernel.claim(CHILDREN)
    assert len(children) == CHILDREN
    workers = [await beside() for _ in range(12)]
    began: list[Item] = []
    refused = 0

    async def work(worker: Kernel, share: list[Item], size: int) -> None:
        nonlocal refused
        for first in range(0, len(share), size):
            part = share[first : first + size]
            items = [turn_item(turn, call_id="m", tool="x", reserve={"tool_calls": 1, "tokens": 10}) for turn in part]
            for turn, answer in zip(part, await worker.call("begin_call", items), strict=True):
                if answer["outcome"] == "fresh":
                    began.append(turn)
                else:
                    assert answer["code"] == "BUDGET_EXCEEDED"
                    refused += 1

    await asyncio.gather(*(work(worker, children[n::12], 1 + n % 5) for n, worker in enumerate(workers)))
    assert (len(began), refused) == (MOST, CHILDREN - MOST)
    assert await budget(kernel) == {"tool_calls": (0, MOST, 0), "tokens": (0, 10 * MOST, 0)}

    async def settle(worker: Kernel, share: list[Item]) -> None:
        for n, turn in enumerate(share):
            if n % 3:
                assert (await record(worker, turn, "m", used={"tokens": 7}))["outcome"] == "ok"
            else:  # another way to settle, at the same moment
                await worker.stop(turn["turn_id"])

    await asyncio.gather(*(settle(worker, began[n::12]) for n, worker in enumerate(workers)))
    stopped = sum(len(range(0, len(began[n::12]), 3)) for n in range(12))
    assert await budget(kernel) == {
        "tool_calls": (MOST, 0, 0),
        "tokens": (7 * (MOST - stopped) + 10 * stopped, 0, 0),
    }
