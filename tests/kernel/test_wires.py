"""Wires: outbox rows of a project with a wire wait for workers that have it."""

from __future__ import annotations

import asyncpg
import pytest

from tests.kernel.kit import Kernel
from tests.kernel.waits import command, suspended, tool


async def unpublished(kernel: Kernel) -> list[tuple[str, list[str]]]:
    return [(row["key"].partition(":")[0], row["wires"]) for row in await kernel.call("read_outbox", 10)]


@pytest.mark.proves("L0-51", "G-61")
async def test_outbox_row_names_its_required_wires(kernel: Kernel) -> None:
    await suspended(kernel, command("c1"), tool("c2"))
    await kernel.finish(await kernel.running("run_b", "turn_b"), ends="success")
    assert await unpublished(kernel) == [("evt", [])]  # a command has nowhere to go: tools come and take it
    assert await kernel.call("declare_wire", "nats") == "declared"
    assert await kernel.call("declare_wire", "nats") == "duplicate"
    assert await unpublished(kernel) == [("cmd", ["nats"]), ("evt", ["nats"])]


async def test_removed_wire_blocks_no_event(kernel: Kernel) -> None:
    await kernel.call("declare_wire", "nats")
    await suspended(kernel, command("c1"))
    forget = "select heliograph.forget_wire($1, $2)"
    for answer in ('"forgotten"', '"unknown"'):
        assert await kernel.connection.fetchval(f"{forget}::text", kernel.project, "nats") == answer
    assert await unpublished(kernel) == []


@pytest.mark.parametrize("name", ["", "x" * 201, None])
async def test_wire_without_a_name_is_rejected(kernel: Kernel, name: str | None) -> None:
    with pytest.raises(asyncpg.InvalidParameterValueError, match="the name of a wire must have 1 to 200 bytes"):
        await kernel.call("declare_wire", name)
