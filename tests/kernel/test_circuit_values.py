"""Values of circuit breakers: one that would fail the calls of other turns is rejected, and a fast clock is corrected."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import asyncpg
import pytest

import heliograph
from tests.kernel.circuits import breaker, fail, half_open, opened, try_call
from tests.kernel.kit import Kernel

MARK = {"type": "tool_call", "target": "charge", "generation": 2, "is_trial": True}
MIGRATION = Path(heliograph.__file__).parent / "ledger" / "sql" / "migrations" / "0021_circuit_values.sql"
FAR = ("infinity", "-infinity", "2400-01-01", "1000-01-01")


@pytest.mark.proves("CB-07", "K20")
@pytest.mark.parametrize(
    "mark",
    [[], 1, "x", {}, {**MARK, "more": 1}, {**MARK, "type": "halt"}, {**MARK, "type": None}, {**MARK, "target": 7},
     {**MARK, "target": ""}, {**MARK, "target": "x" * 201}, {**MARK, "generation": -1}, {**MARK, "generation": 1.5},
     {**MARK, "generation": "1"}, {**MARK, "generation": 10**15 + 1}, {**MARK, "generation": None}, {**MARK, "is_trial": "yes"},
     {**MARK, "is_trial": None}, {key: value for key, value in MARK.items() if key != "is_trial"}],
)  # fmt: skip
async def test_mark_that_would_fail_the_commits_of_others_is_rejected(kernel: Kernel, mark: Any) -> None:
    claimed = await half_open(kernel, 1)
    write = "update heliograph.turn_waiting_tools set circuit = $1::text::jsonb where tool_call_id = 't0'"
    with pytest.raises((asyncpg.CheckViolationError, asyncpg.InvalidParameterValueError)):
        await kernel.connection.execute(write, json.dumps(mark))
    await kernel.connection.execute(write, json.dumps(MARK))
    await fail(kernel, claimed, "t0")


@pytest.mark.proves("CB-07", "K20")
@pytest.mark.parametrize(
    "change",
    [*(f"update heliograph.circuit_breakers set changed_at = '{at}'" for at in FAR),
     *(f"update heliograph.circuit_breakers set state = 'open', open_until = '{at}'" for at in FAR),
     *(f"update heliograph.circuit_calls set expires_at = '{at}'" for at in FAR),
     *(f"update heliograph.circuit_calls set status = 'failure', ended_at = '{at}'" for at in FAR),
     *(f"update heliograph.{table} set generation = {n}" for table in ("circuit_breakers", "circuit_calls") for n in (-1, 2**62)),
     *(f"update heliograph.{table} set target = repeat('x', {n})" for table in ("circuit_breakers", "circuit_calls") for n in (0, 201)),
     "update heliograph.circuit_calls set expires_at = null"],
)  # fmt: skip
async def test_time_or_number_that_would_fail_every_call_of_a_target_is_rejected(kernel: Kernel, change: str) -> None:
    await half_open(kernel, 1)
    with pytest.raises(asyncpg.CheckViolationError):
        await kernel.connection.execute(change)


@pytest.mark.proves("CB-07", "K20")
async def test_largest_generation_is_followed_by_the_first(kernel: Kernel) -> None:
    claimed = await opened(kernel)
    await kernel.connection.execute("update heliograph.circuit_breakers set generation = 999999999999999")
    kernel.wait(60)
    assert await try_call(kernel, claimed, "t0") == "fresh"
    assert [row["generation"] for row in await kernel.rows("circuit_breakers", "generation")] == [0]
    await fail(kernel, claimed, "t0")
    assert await breaker(kernel) == ("half_open", 1, 0, 0)


@pytest.mark.proves("CB-05", "K20")
async def test_breaker_that_a_fast_clock_has_opened_is_open_for_its_time_only(kernel: Kernel) -> None:
    kernel.wait(3600)  # the clock of a worker, an hour ahead
    claimed = await opened(kernel)
    kernel.wait(-3600)
    assert await try_call(kernel, claimed, "c0") == "CIRCUIT_OPEN"
    kernel.wait(59)
    assert await try_call(kernel, claimed, "c1") == "CIRCUIT_OPEN"
    kernel.wait(1)
    assert await try_call(kernel, claimed, "c2") == "fresh"


@pytest.mark.proves("CB-05", "K20")
async def test_breaker_that_was_open_until_before_a_future_change_admits_calls(kernel: Kernel) -> None:
    claimed = await opened(kernel)
    await kernel.harm(
        "update circuit_breakers set changed_at = '2299-01-01', open_until = '1950-01-01' where project_id = $1"
    )
    assert await try_call(kernel, claimed, "t0") == "fresh"
    assert await breaker(kernel) == ("half_open", 0, 0, 1)


@pytest.mark.proves("CB-07", "K20")
async def test_upgrade_removes_values_that_the_constraints_reject(kernel: Kernel) -> None:
    await half_open(kernel, 2)
    undone = kernel.connection.transaction()
    await undone.start()
    for limited, constraint in (
        ("table heliograph.circuit_breakers", "circuit_breakers_values"),
        ("table heliograph.circuit_calls", "circuit_calls_values"),
        ("domain heliograph.circuit_mark", "circuit_mark_check"),
    ):
        await kernel.connection.execute(f"alter {limited} drop constraint {constraint}")
    await kernel.connection.execute("update heliograph.circuit_breakers set changed_at = 'infinity'")
    await kernel.connection.execute("update heliograph.circuit_calls set generation = -1 where call_id = 't0'")
    await kernel.connection.execute("update heliograph.turn_waiting_tools set circuit = '7' where tool_call_id = 't0'")
    await kernel.connection.execute(MIGRATION.read_text("utf-8"))
    left = await kernel.connection.fetch(
        "select call_id from heliograph.circuit_calls where project_id = $1", kernel.project
    )
    marked = await kernel.rows("turn_waiting_tools", "tool_call_id", "circuit is not null and tool_call_id like 't%'")
    assert await kernel.rows("circuit_breakers", "state") == []
    assert ([row["call_id"] for row in left], [row["tool_call_id"] for row in marked]) == (["t1"], ["t1"])
    await undone.rollback()
