"""The observed activity and expectation of a turn are accurate and guard nothing (L0-16 to L0-19)."""

from __future__ import annotations

import pytest

from tests.kernel.kit import Kernel
from tests.kernel.waits import begin, record, report, suspend, tool


@pytest.mark.proves("L0-16", "L0-17", "L0-18")
async def test_observed_activity_follows_the_turn(kernel: Kernel) -> None:
    async def seen() -> tuple[str | None, str | None, int | None]:
        row = await kernel.row("turn_overview", "turn_id", "turn_a")
        return row["activity"], row["current_tool"], row["waiting_tool_count"]

    await kernel.start("run_a", ["writer"], {"turn_a": "writer"})
    assert await seen() == (None, None, 0)  # no worker has claimed it
    claimed = await kernel.claim_one()
    assert await seen() == ("thinking", None, 0)
    await begin(kernel, claimed, "i1")
    assert await seen() == ("executing_tool", "charge", 0)
    await record(kernel, claimed, "i1")
    assert await seen() == ("thinking", None, 0)
    await suspend(kernel, claimed, tool("c1"), tool("c2", tool="fetch"))
    assert await seen() == ("awaiting_tool_result", "fetch", 2)
    await report(kernel, "turn_a", "c2")
    assert await seen() == ("awaiting_tool_result", "search", 1)
    await report(kernel, "turn_a", "c1")
    assert await seen() == (None, None, 0)
    resumed = await kernel.claim_one()
    assert await seen() == ("thinking", None, 0)
    await kernel.finish(resumed, ends="success")
    assert await seen() == (None, None, None)


@pytest.mark.proves("L0-16", "L0-17")
async def test_observed_activity_is_not_stored_and_no_function_reads_it(kernel: Kernel) -> None:
    """It cannot be a guard: only the view computes it, and no function of the kernel reads the view."""
    tables = await kernel.connection.fetch(
        "select c.relname from pg_attribute a join pg_class c on c.oid = a.attrelid and c.relkind = 'r'"
        " where c.relnamespace = 'heliograph'::regnamespace and a.attname in ('activity', 'current_tool')"
    )
    functions = await kernel.connection.fetch(
        "select proname from pg_proc where pronamespace = 'heliograph'::regnamespace and prosrc ~ 'activity|current_tool|turn_overview'"
    )
    assert (tables, functions) == ([], [])


@pytest.mark.proves("L0-19", "L0-54", "L0-15")
async def test_only_an_action_sets_the_expected_correlation_and_only_until_it_suspends(kernel: Kernel) -> None:
    async def expected() -> str | None:
        return str((await kernel.head("run_a/writer"))["expecting_correlation_id"])

    await kernel.start("run_a", ["writer"], {"turn_a": "writer"})
    claimed = await kernel.claim_one()
    correlations = [await expected()]
    await suspend(kernel, claimed, tool("c1"))
    correlations.append(await expected())
    await report(kernel, "turn_a", "c1")
    correlations.append(await expected())
    await kernel.finish(await kernel.claim_one())
    await kernel.enqueue("run_a", "writer", "turn_x")
    correlations.append(await expected())
    await kernel.finish(await kernel.claim_one())
    assert correlations == ["None"] * 4
    await kernel.enqueue("run_a", "writer", "turn_b", message_type="ui_action")
    assert await expected() == "turn_b"
    claimed = await kernel.claim_one()
    assert await expected() == "turn_b"
    await suspend(kernel, claimed, tool("c1"))
    assert await expected() == "None"
    await report(kernel, "turn_b", "c1")  # and it remains so after each kind of resumption
    assert ((await kernel.claim_one())["turn_id"], await expected()) == ("turn_b", "None")
