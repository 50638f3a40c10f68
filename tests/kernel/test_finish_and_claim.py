"""Endings and the claim of the next turns in one call."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from tests.kernel.kit import TARGET, Kernel, ending


async def both(
    kernel: Kernel, items: list[Any], limit: int = 10, lease_seconds: float = 30.0
) -> tuple[list[str], list[str]]:
    """The outcomes of the endings, and the claimed turns."""
    answer = await kernel.call("finish_and_claim", items, [{"target": TARGET}], "w1", limit, lease_seconds)
    return [row["outcome"] for row in answer["finished"]], [row["turn_id"] for row in answer["claimed"]]


async def test_turns_end_and_the_next_ones_are_claimed(kernel: Kernel) -> None:
    first = await kernel.running("run_a", "turn_a")
    await kernel.start("run_b", ["writer"], {"turn_b": "writer"})
    assert await both(kernel, [ending(first, ends="success")]) == (["ok"], ["turn_b"])
    assert (await kernel.turn("turn_a"))["state"] == "done"
    head = await kernel.head("run_b/writer")
    assert (head["status"], head["turn_epoch"], head["owner"]) == ("running", 2, "w1")


async def test_ending_that_is_rejected_frees_no_slot(kernel: Kernel) -> None:
    first = await kernel.running("run_a", "turn_a")
    second = await kernel.running("run_b", "turn_b")
    for name in "cd":
        await kernel.start(f"run_{name}", ["writer"], {f"turn_{name}": "writer"})
    late = ending(second, ends="success") | {"epoch": second["epoch"] - 1}
    assert await both(kernel, [late], limit=1) == (["stale"], [])
    assert await both(kernel, [ending(first, ends="success"), late], limit=2) == (["ok", "stale"], ["turn_c"])


@pytest.mark.parametrize(("limit", "lease_seconds"), [(0, 30.0), (1001, 30.0), (1, 0.0)])
async def test_rejected_claim_ends_no_turn(kernel: Kernel, limit: int, lease_seconds: float) -> None:
    claimed = await kernel.running()
    with pytest.raises(asyncpg.InvalidParameterValueError):
        await both(kernel, [ending(claimed, ends="success")], limit, lease_seconds)
    assert (await kernel.head("run_a/writer"))["status"] == "running"
    await kernel.finish(claimed, ends="success")
