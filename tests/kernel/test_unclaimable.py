"""A turn that no worker can claim is ended by the kernel; one that can be claimed is left alone (K23)."""

from __future__ import annotations

import asyncpg
import pytest

from tests.kernel.kit import TARGET, Item, Kernel
from tests.kernel.waits import report, status, suspended, tool

BYTES = 16_000_000  # of each of 20 results: together they exceed the 256 MB of one JSON value


async def enlarge(kernel: Kernel, turn_id: str, length: int = BYTES) -> None:
    """Replace the results of a turn's calls by large ones. length: of the text that is stored in place of one."""
    await kernel.connection.execute(
        "insert into blobs (project_id, blob_id, bytes, content, created_at)"
        " values ($1, 'large', $2::integer, to_jsonb(repeat('x', $3::integer)), now())",
        kernel.project, BYTES, length,
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
    assert answer["message"].startswith("no worker can claim it: 54000 the results of the calls of one turn")
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


@pytest.mark.proves("K23", "S22")
async def test_results_that_are_too_large_together_are_rejected_before_they_are_read(kernel: Kernel) -> None:
    """Otherwise the call exceeds the time limit of its worker, which repeats it, and the turns behind it wait."""
    calls = [f"c{n}" for n in range(20)]
    await suspended(kernel, *[tool(call_id) for call_id in calls])
    for call_id in calls:
        await report(kernel, "turn_a", call_id)
    await enlarge(kernel, "turn_a", length=1)
    with pytest.raises(asyncpg.ProgramLimitExceededError):
        await kernel.claim()
    with pytest.raises(asyncpg.ProgramLimitExceededError):
        await kernel.call("read_open_turns", TARGET, None, "", 0, 2)
    [named] = (await kernel.call("read_open_turns", TARGET, None, "", 0, 1))["turns"]
    assert (named["claimed"]["turn_id"], "over 256 MB" in named["problem"]) == ("turn_a", True)
    assert (await fail_unclaimable(kernel))["turn_id"] == "turn_a"
    with pytest.raises(asyncpg.ProgramLimitExceededError):
        await kernel.call("read_ended_turns", "run_a", 0, 2)
    page = await kernel.call("read_ended_turns", "run_a", 0, 1)
    assert [each["claimed"]["turn_id"] for each in page["turns"]] == ["turn_a"]
    assert (await kernel.call("read_ended_turns", "run_a", page["next"], 1))["turns"] == []


async def test_turn_that_can_be_claimed_or_is_claimed_is_unchanged(kernel: Kernel) -> None:
    assert await fail_unclaimable(kernel) == {}
    claimed = await kernel.running()
    assert await fail_unclaimable(kernel) == {}
    assert (await kernel.renew(claimed))["outcome"] == "ok"
