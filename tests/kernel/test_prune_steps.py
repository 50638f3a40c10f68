"""prune in small steps beside other transactions: no waiting, and nothing half removed."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from tests.kernel.kit import DELIVERABLE, TABLES, Connect, Kernel, draft, turn_item
from tests.kernel.test_boxes import cards, fork, put, read, write
from tests.kernel.test_prune import DAY, ended, full_life, prune, row_counts


@pytest.mark.proves("S21")
async def test_prune_takes_a_limited_batch_and_returns_whether_more_remains(kernel: Kernel) -> None:
    for n in range(5):
        claimed = await kernel.running(f"run_{n}", f"turn_{n}")
        for count in range(7):
            await kernel.append(claimed, draft("note", claimed["activation_id"]), signals_emitted=count)
        await kernel.finish(claimed, ends="success")
        kernel.wait(1)
    await kernel.publish()
    kernel.wait(2 * DAY)
    rows, calls = [], 0
    while True:
        answer = await prune(kernel, limit=2)
        calls += 1
        rows.append((answer["turns"], answer["signals"], answer["runs"]))
        assert max(rows[-1]) <= 2
        assert await kernel.checks() == []  # at each step of the way
        if not answer["more"]:
            break
    assert (sum(row[0] for row in rows), sum(row[1] for row in rows), sum(row[2] for row in rows)) == (5, 45, 5)
    assert [row[0] for row in rows[:3]] == [2, 2, 1]  # the oldest first
    assert (await row_counts(kernel), calls < 30) == ({}, True)


@pytest.mark.proves("S21", "K17")
@pytest.mark.parametrize(("table", "where", "taken"), [
    ("agent_state_head", "agent_id = 'run_a/writer'", (1, 1, 2)), ("agent_turns", "agent_turn_id = 'turn_a'", (1, 1, 2)),
    ("runs", "run_id = 'run_a'", (2, 1, 2)), ("boxes", "box_id = 'context_1'", (2, 2, 1)),
])  # fmt: skip
async def test_prune_skips_locked_rows_without_waiting(
    kernel: Kernel, beside: Connect, table: str, where: str, taken: tuple[int, int, int]
) -> None:
    holder = await beside()
    for name in "ab":
        await ended(kernel, name)
    await put(kernel, "context_1", "held")
    await put(kernel, "context_2", "free")
    kernel.wait(2 * DAY)
    await kernel.connection.execute("set lock_timeout = 1")
    async with holder.connection.transaction():
        await holder.connection.execute(
            f"select from heliograph.{table} where project_id = $1 and {where} for update", holder.project
        )
        answer = await prune(kernel)
        assert (answer["turns"], answer["runs"], answer["boxes"]) == taken
    await prune(kernel)
    assert await row_counts(kernel) == {}


@pytest.mark.proves("S21")
async def test_fork_that_is_just_being_created_keeps_its_base(kernel: Kernel, beside: Connect) -> None:
    other = await beside()
    await ended(kernel)
    await put(kernel, "context_1", "first")
    kernel.wait(2 * DAY)
    async with other.connection.transaction():
        assert await fork(other, "fork_1", "box_turn_a") == "forked"
        assert await fork(other, "fork_2", "context_1") == "forked"
        answer = await prune(kernel)
        assert (answer["turns"], answer["boxes"]) == (0, 0)
    assert await read(kernel, "fork_1") == ["a note", "done"]
    assert await read(kernel, "fork_2") == ["first"]


async def test_blob_being_written_again_is_not_pruned(kernel: Kernel, beside: Connect) -> None:
    other = await beside()
    await kernel.call("set_limits", {"card_bytes_max": 100})
    box = {"box_id": "context_1", "cards": cards("x" * 1000)}
    await kernel.call("put_boxes", [box])
    kernel.wait(2 * DAY)
    other.now = kernel.now
    async with other.connection.transaction():
        await other.call("put_boxes", [box | {"box_id": "context_2"}])
        answer = await prune(kernel)
        assert (answer["boxes"], answer["blobs"]) == (1, 0)
    assert await read(kernel, "context_2") == ["x" * 1000]


@pytest.mark.proves("L0-03", "L0-04")
async def test_pruning_removes_every_row_of_its_turn_and_none_of_another(kernel: Kernel) -> None:
    await full_life(kernel)
    kernel.wait(2 * DAY)
    claimed = await kernel.running("run_z", "turn_z")
    await write(kernel, claimed, "mine")
    before = await kernel.everything()
    await prune(kernel)
    after = await kernel.everything()
    for table in TABLES:
        others = [row for row in before[table] if "_z" in repr(row) or table == "project_limits"]
        assert [row for row in after[table] if table != "pruned"] == others, table
    assert (await kernel.finish(claimed, ends="success"))["outcome"] == "ok"
    assert [row["kind"] for row in await kernel.rows("cards", "position, kind")] == ["note", DELIVERABLE]


NONSENSE: list[tuple[float, Any, str]] = [
    (1, 0, "limit must be between 1 and 10000"), (1, -1, "limit must be"), (1, 10_001, "limit must be"),
    (1, None, "limit must be"), (0, 10, "a time in the past"), (-1, 10, "a time in the past"),
]  # fmt: skip


@pytest.mark.parametrize(("days", "limit", "message"), NONSENSE)
async def test_prune_with_invalid_arguments_removes_nothing(
    kernel: Kernel, days: float, limit: Any, message: str
) -> None:
    await ended(kernel)
    kernel.wait(10 * DAY)
    before = await kernel.everything()
    with pytest.raises(asyncpg.InvalidParameterValueError, match=message):
        await prune(kernel, days, limit)
    with pytest.raises(asyncpg.InvalidParameterValueError, match="a time in the past"):
        await kernel.call("prune", None, 10)
    assert await kernel.everything() == before


async def test_write_to_a_pruned_turn_is_stale(kernel: Kernel) -> None:
    claimed = await ended(kernel)
    kernel.wait(2 * DAY)
    await prune(kernel)
    for function, item in (
        ("begin_call", turn_item(claimed, call_id="c", tool="t")),
        ("replace_boxes", turn_item(claimed)),
    ):
        (answer,) = await kernel.call(function, [item])
        assert answer["outcome"] == "stale"
