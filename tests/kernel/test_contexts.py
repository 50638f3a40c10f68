"""The context box of a turn: complete, and kept as long as the turn may read it (L0-30, L0-95)."""

from __future__ import annotations

from datetime import timedelta

import asyncpg
import pytest

from tests.kernel.kit import Connect, Item, Kernel, ending
from tests.kernel.test_boxes import fork, put, read, replace
from tests.kernel.test_isolation import opened, when_blocked
from tests.kernel.waits import activated, child, suspend


@pytest.mark.proves("L0-92", "L0-95", "L0-30")
@pytest.mark.parametrize(("box_id", "code"), [("no-such-box", "unknown_box"), ("box_no_such_turn", "unknown_box"),
                                              ("box_turn_a", "box_in_use"), ("fork_1", "box_in_use")])  # fmt: skip
async def test_missing_or_unfinished_box_is_rejected_as_a_context(kernel: Kernel, box_id: str, code: str) -> None:
    await put(kernel, "context_1", "first")
    claimed = await kernel.running()
    await fork(kernel, "fork_1", "context_1", "turn_a")
    before = await kernel.everything()
    assert (await replace(kernel, claimed, context_box_id=box_id))["code"] == code
    assert (await kernel.enqueue("run_a", "critic", "turn_2", context_box_id=box_id))["code"] == code
    call = child("c1", "critic", "turn_2", context_box_id=box_id)
    refused = await suspend(kernel, claimed, call, signals=activated("critic"))
    assert (refused["outcome"], refused["code"]) == ("rejected", code)
    with pytest.raises(asyncpg.InvalidParameterValueError, match=box_id):  # the caller has disconnected
        await kernel.start("run_b", ["writer"], {"turn_b": "writer"}, context_box_id=box_id)
    assert await kernel.everything() == before


def _waking(claimed: Item, box_id: str) -> Item:
    """An ending that wakes the critic with this box to read."""
    item = ending(claimed, wakes={"turn_2": "critic"})
    item["reaction"]["activations"][0]["context_box_id"] = box_id
    return item


@pytest.mark.proves("L0-82", "L0-90")
async def test_turns_woken_by_an_ending_read_the_cards_of_the_ended_turn(kernel: Kernel) -> None:
    claimed = await kernel.running()
    with pytest.raises(asyncpg.InvalidParameterValueError, match="no-such-box"):
        await kernel.call("finish", [_waking(claimed, "no-such-box")])
    (answer,) = await kernel.call("finish", [_waking(claimed, "box_turn_a")])
    assert (answer["outcome"], (await kernel.claim_one())["context_box_id"]) == ("ok", "box_turn_a")


@pytest.mark.proves("L0-95", "L0-30")
@pytest.mark.parametrize("by", ["enqueue", "child"])
async def test_prune_keeps_a_box_that_is_being_given_to_a_turn(kernel: Kernel, beside: Connect, by: str) -> None:
    other = await beside()
    await put(kernel, "context_1", "first")
    claimed = await kernel.running()
    kernel.wait(86400)
    async with opened(kernel):
        if by == "enqueue":
            await kernel.enqueue("run_a", "critic", "turn_2", context_box_id="context_1")
        else:
            call = child("c1", "critic", "turn_2", context_box_id="context_1")
            assert (await suspend(kernel, claimed, call, signals=activated("critic")))["outcome"] == "suspended"
        other.now = kernel.now
        assert (await other.call("prune", kernel.now - timedelta(hours=1), 100))["boxes"] == 0
    assert await read(kernel, "context_1") == ["first"]


@pytest.mark.proves("L0-95", "L0-30")
async def test_box_being_pruned_is_not_given_to_a_turn(kernel: Kernel, beside: Connect) -> None:
    client, watcher = await beside(), await beside()
    await put(kernel, "context_1", "first")
    await kernel.running()
    kernel.wait(86400)
    async with opened(kernel):
        assert (await kernel.call("prune", kernel.now - timedelta(hours=1), 100))["boxes"] == 1
        task = await when_blocked(
            client, client.enqueue("run_a", "critic", "turn_2", context_box_id="context_1"), watcher
        )
    assert (await task)["code"] == "unknown_box"
