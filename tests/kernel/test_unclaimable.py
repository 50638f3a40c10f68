"""A turn that no worker can claim is ended by the kernel; one that can be claimed is left alone (K23)."""

from __future__ import annotations

import pytest

from tests.kernel.kit import TARGET, Item, Kernel
from tests.kernel.waits import report, status, suspended, tool

BYTES = 16_000_000  # of each of 20 results: together they exceed the 256 MB of one JSON value


async def enlarge(kernel: Kernel, turn_id: str) -> None:
    """Replace the results of a turn's calls by large ones."""
    await kernel.connection.execute(
        "insert into blobs (project_id, blob_id, bytes, content, created_at)"
        " values ($1, 'large', $2::integer, to_jsonb(repeat('x', $2::integer)), now())",
        kernel.project, BYTES,
    )  # fmt: skip
    await kernel.connection.execute(
        "update cards set content = jsonb_build_object('$blob', 'large', 'bytes', $3::integer)"
        " where project_id = $1 and agent_turn_id = $2 and kind = 'tool.result'",
        kernel.project, turn_id, BYTES,
    )  # fmt: skip


async def fail_unclaimable(kernel: Kernel) -> Item:
    answer: Item = await kernel.call("fail_unclaimable", [{"target": TARGET}])
    return answer


@pytest.mark.more
@pytest.mark.proves("K23")
async def test_turn_whose_claim_is_too_large_ends_as_failed(kernel: Kernel) -> None:
    calls = [f"c{n}" for n in range(20)]
    await suspended(kernel, *[tool(call_id) for call_id in calls])
    for call_id in calls:
        await report(kernel, "turn_a", call_id)
    assert await fail_unclaimable(kernel) == {}
    assert await status(kernel) == "dispatched"
    await enlarge(kernel, "turn_a")
    answer = await fail_unclaimable(kernel)
    assert (answer["turn_id"], answer["run_id"], answer["target"]) == ("turn_a", "run_a", TARGET)
    assert answer["message"].startswith("no worker can claim it: 54000 ")
    [card] = await kernel.rows("cards", "content", "kind = 'task.deliverable'")
    assert card["content"]["error"]["code"] == "RESOURCE_EXHAUSTED"
    assert (await status(kernel), await fail_unclaimable(kernel)) == ("idle", {})
    assert await kernel.checks() == []


@pytest.mark.more
@pytest.mark.proves("K12", "K23")
async def test_stopping_turn_whose_claim_is_too_large_ends_as_canceled(kernel: Kernel) -> None:
    calls = [f"c{n}" for n in range(20)]
    await suspended(kernel, *[tool(call_id) for call_id in calls], terminates=True)
    for call_id in calls:
        await report(kernel, "turn_a", call_id)
    await enlarge(kernel, "turn_a")
    assert (await kernel.stop("turn_a", "graceful", reason="enough"))["outcome"] == "stopping"
    assert (await fail_unclaimable(kernel))["message"].startswith("no worker can claim it: 54000 ")
    [card] = await kernel.rows("cards", "content", "kind = 'task.deliverable'")
    assert (card["content"]["error"]["code"], card["content"]["text"]) == ("CANCELED", "enough")
    assert (await kernel.turn("turn_a"))["outcome"] == "canceled"
    assert await kernel.checks() == []


async def test_turn_that_can_be_claimed_or_is_claimed_is_unchanged(kernel: Kernel) -> None:
    assert await fail_unclaimable(kernel) == {}
    claimed = await kernel.running()
    assert await fail_unclaimable(kernel) == {}
    assert (await kernel.renew(claimed))["outcome"] == "ok"
