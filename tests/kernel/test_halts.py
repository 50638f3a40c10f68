"""Halts: the commit that closes a call writes the halt of its command, if somebody has received the command."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from heliograph.errors import KernelRejected
from tests.kernel.kit import START, Connect, Item, Kernel
from tests.kernel.waits import TOKEN, command, halting, report, suspended


async def halts(kernel: Kernel, limit: int = 10, seconds: float = 20.0, busy: Sequence[str] = ()) -> list[Item]:
    taken: list[Item] = await kernel.call("take_halts", list(busy), limit, seconds)
    return taken


async def received(kernel: Kernel, *calls: Item, **options: Any) -> None:
    await suspended(kernel, *calls, **options)
    await kernel.call("take_commands", ["search"], 10, 30.0)


@pytest.mark.proves("CTL-35", "RTE-07")
@pytest.mark.parametrize("ends", ["timeout", "stop", "sibling"])
async def test_call_that_nobody_waits_for_any_more_is_halted_by_the_commit_that_closes_it(
    kernel: Kernel, ends: str
) -> None:
    await received(kernel, halting("c1", 5, fails_fast=True, step_id="s"), command("c2", fails_fast=True, step_id="s"))
    at = START
    if ends == "stop":
        await kernel.stop("turn_a")
    elif ends == "timeout":
        kernel.wait(5)
        at += timedelta(seconds=5)
        await kernel.sweep("waits")
    else:
        await report(kernel, "turn_a", "c2", token=TOKEN, status="failed", error={"code": "E"})
    [halt] = await halts(kernel)
    assert halt == {"key": "halt:turn_a:c1", "turn_id": "turn_a", "call_id": "c1", "body": {"stop": "c1"},
                    "created_at": at.isoformat()}  # fmt: skip


@pytest.mark.proves("CTL-35")
async def test_halts_are_taken_in_order_hidden_and_sent_until_they_are_marked(kernel: Kernel, beside: Connect) -> None:
    for name in "ab":
        await received(kernel, halting("c2"), halting("c1"), run_id=f"run_{name}", turn_id=f"turn_{name}")
        await kernel.stop(f"turn_{name}")
        kernel.wait(1)
    other = await beside()
    other.now = kernel.now
    async with kernel.connection.transaction():
        assert [each["key"] for each in await halts(kernel, 3)] == [
            "halt:turn_a:c1",
            "halt:turn_a:c2",
            "halt:turn_b:c1",
        ]
        assert [each["key"] for each in await halts(other)] == ["halt:turn_b:c2"]
    assert await halts(kernel) == []
    await kernel.call("mark_published", ["halt:turn_a:c1", "halt:turn_b:c2"])
    kernel.wait(20)
    assert [each["key"] for each in await halts(kernel)] == ["halt:turn_a:c2", "halt:turn_b:c1"]


@pytest.mark.proves("CTL-35")
async def test_halts_for_busy_gateways_are_left_to_others(kernel: Kernel) -> None:
    calls = {"c1": "https://slow.example/", "c2": "https://other.example/", "c3": None}
    await received(kernel, *[halting(call_id, gateway=gateway) for call_id, gateway in calls.items()])
    await kernel.stop("turn_a")
    assert [each["call_id"] for each in await halts(kernel, busy=["https://slow.example/"])] == ["c2", "c3"]
    assert [each["call_id"] for each in await halts(kernel)] == ["c1"]


@pytest.mark.proves("CTL-35")
@pytest.mark.parametrize("why", ["not received", "no halt", "no object", "answered", "answered as failed"])
async def test_call_without_work_to_stop_has_no_halt(kernel: Kernel, why: str) -> None:
    call = halting("c1", 5)
    if why in ("no halt", "no object"):
        call["command"]["body"] = {"query": "c1"} if why == "no halt" else {"halt": "c1"}
    await suspended(kernel, call)
    if why != "not received":
        await kernel.call("take_commands", ["search"], 10, 30.0)
    if why.startswith("answered"):
        fields = {} if why == "answered" else {"status": "failed", "error": {"code": "E"}}
        await report(kernel, "turn_a", "c1", token=TOKEN, **fields)
    kernel.wait(5)
    await kernel.sweep("waits")
    await kernel.stop("turn_a")
    assert await halts(kernel) == []


@pytest.mark.proves("CTL-35")
async def test_failure_of_work_that_may_still_run_is_reported_with_its_halt(kernel: Kernel) -> None:
    await received(kernel, *[halting(call_id) for call_id in ("c1", "c2", "c3")])
    for call_id, mark in (("c1", True), ("c2", False), ("c3", None)):
        fields = {"status": "failed", "error": {"code": "E"}, "may_still_run": mark}
        assert (await report(kernel, "turn_a", call_id, token=TOKEN, **fields))["outcome"] == "applied"
    assert [each["key"] for each in await halts(kernel)] == ["halt:turn_a:c1"]
    assert await kernel.checks() == []


@pytest.mark.parametrize("mark", ["yes", 1, [True]], ids=repr)
async def test_may_still_run_must_be_a_boolean(kernel: Kernel, mark: Any) -> None:
    await received(kernel, halting("c1"))
    before = await kernel.everything()
    with pytest.raises(KernelRejected, match="may_still_run"):
        await report(kernel, "turn_a", "c1", token=TOKEN, may_still_run=mark)
    assert await kernel.everything() == before


@pytest.mark.proves("CTL-35", "K18")
async def test_unsent_halt_keeps_its_turn_and_a_sent_one_is_pruned_with_it(kernel: Kernel) -> None:
    await received(kernel, halting("c1"))
    await kernel.stop("turn_a")
    await kernel.publish()
    await kernel.call("stop_runs", [{"run_id": "run_a", "mode": "force"}])
    kernel.wait(10)
    pruned = [await _prune(kernel), await kernel.call("mark_published", ["halt:turn_a:c1"]), await _prune(kernel)]
    assert pruned == [0, 1, 1]
    assert await kernel.rows("outbox", "key") == []


async def _prune(kernel: Kernel) -> int:
    return int((await kernel.call("prune", kernel.now - timedelta(seconds=1), 100))["turns"])


@pytest.mark.parametrize(
    ("limit", "seconds"), [(0, 20.0), (1001, 20.0), (None, 20.0), (1, -1.0), (1, float("nan")), (1, 86401.0), (1, None)]
)
async def test_halts_with_an_argument_out_of_range_are_rejected(kernel: Kernel, limit: Any, seconds: Any) -> None:
    with pytest.raises(asyncpg.InvalidParameterValueError, match="must be between"):
        await halts(kernel, limit, seconds)
