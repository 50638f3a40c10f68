"""Wires: outbox rows of a project with a wire wait for workers that have it."""

from __future__ import annotations

import asyncpg
import pytest

from tests.kernel.kit import Connect, Kernel, new_project
from tests.kernel.test_isolation import opened, when_blocked
from tests.kernel.waits import command, suspended, tool

FORGET = "select heliograph.forget_wire($1, $2)"


async def unpublished(kernel: Kernel) -> list[tuple[str, list[str]]]:
    return [(row["key"].partition(":")[0], row["wires"]) for row in await kernel.call("read_outbox", 10)]


@pytest.mark.proves("L0-51", "G-61")
async def test_outbox_row_names_its_required_wires(kernel: Kernel) -> None:
    await suspended(kernel, command("c1"), tool("c2"))
    await kernel.finish(await kernel.running("run_b", "turn_b"), ends="success")
    assert await unpublished(kernel) == [("evt", ["postgres"])]  # no command: tools come and take it
    assert await kernel.call("declare_wire", "nats") == "declared"
    assert await kernel.call("declare_wire", "nats") == "duplicate"
    assert await unpublished(kernel) == [("cmd", ["nats", "postgres"]), ("evt", ["nats", "postgres"])]


async def test_removed_wire_blocks_no_event(kernel: Kernel) -> None:
    await kernel.call("declare_wire", "nats")
    await suspended(kernel, command("c1"))
    for answer in ('"forgotten"', '"unknown"'):
        assert await kernel.connection.fetchval(f"{FORGET}::text", kernel.project, "nats") == answer
    assert await unpublished(kernel) == []


@pytest.mark.proves("G-61")
async def test_turn_that_ends_without_a_wire_has_no_event_and_a_mark(kernel: Kernel) -> None:
    await kernel.connection.execute(FORGET, kernel.project, "postgres")
    await kernel.finish(await kernel.running(), ends="success")
    assert (await kernel.rows("outbox", "key"), (await kernel.turn("turn_a"))["lacks_event"]) == ([], True)
    assert await kernel.checks() == []
    assert await kernel.call("declare_wire", "postgres") == "declared"
    await kernel.finish(await kernel.running("run_b", "turn_b"), ends="success")
    assert await unpublished(kernel) == [("evt", ["postgres"])]
    assert (await kernel.turn("turn_b"))["lacks_event"] is False


@pytest.mark.proves("G-61")
async def test_event_of_a_turn_that_ends_after_the_declaration_of_a_wire_is_published(
    kernel: Kernel, beside: Connect
) -> None:
    await kernel.connection.execute(FORGET, kernel.project, "postgres")
    first, second = await kernel.running(), await kernel.running("run_b", "turn_b")
    declaring, ending, watcher = await beside(), await beside(), await beside()
    async with opened(kernel):
        await kernel.finish(first, ends="success")  # has found no wire
        declared = await when_blocked(declaring, declaring.call("declare_wire", "postgres"), watcher)
        assert (await ending.finish(second, ends="success"))["outcome"] == "ok"
    assert await declared == "declared"
    assert [row["key"] for row in await kernel.call("read_outbox", 10)] == ["evt:turn_b"]


@pytest.mark.proves("G-61")
async def test_ending_whose_transaction_began_before_the_declaration_is_published(
    kernel: Kernel, beside: Connect
) -> None:
    await kernel.connection.execute(FORGET, kernel.project, "postgres")
    claimed, declaring = await kernel.running(), await beside()
    async with kernel.connection.transaction(isolation="repeatable_read"):
        assert await kernel.rows("project_wires", "wire") == []
        assert await declaring.call("declare_wire", "postgres") == "declared"
        await kernel.finish(claimed, ends="success")
    assert await unpublished(kernel) == [("evt", ["postgres"])]


async def test_declaration_in_an_open_transaction_delays_no_ending_of_any_project(
    kernel: Kernel, beside: Connect
) -> None:
    same, other = await beside(), await beside()
    other.project = new_project()
    async with opened(kernel):
        assert await kernel.call("declare_wire", "nats") == "declared"
        for ending in (same, other):
            claimed = await ending.running()
            await ending.connection.execute("set lock_timeout = '200ms'")
            assert (await ending.finish(claimed, ends="success"))["outcome"] == "ok"


@pytest.mark.parametrize("name", ["", "x" * 201, None])
async def test_wire_without_a_name_is_rejected(kernel: Kernel, name: str | None) -> None:
    with pytest.raises(asyncpg.InvalidParameterValueError, match="the name of a wire must have 1 to 200 bytes"):
        await kernel.call("declare_wire", name)
