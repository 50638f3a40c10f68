"""Starts of delegated turns that wait for a rate limit: a time at which a turn would never begin is rejected (G-24)."""

from __future__ import annotations

from pathlib import Path

import asyncpg
import pytest

import heliograph
from tests.kernel.filled import RATE
from tests.kernel.kit import Kernel
from tests.kernel.waits import activated, child, suspend

MIGRATION = Path(heliograph.__file__).parent / "ledger" / "sql" / "migrations" / "0025_turn_starts.sql"


async def waiting(kernel: Kernel) -> None:
    """Delegate to the critic three times: turn_d0 begins at once, turn_d1 in a second, and turn_d2 is queued behind them."""
    claimed, rate = await kernel.running(), {**RATE, "count": 1, "kind": "agent", "name": "critic"}
    calls = [{**child(f"d{n}", "critic", f"turn_d{n}", n), "rates": [rate]} for n in range(3)]
    answer = await suspend(kernel, claimed, *calls, signals=activated(*["critic"] * 3))
    assert answer["outcome"] == "suspended"
    await kernel.finish(await kernel.claim_one())
    assert await kernel.claim() == []


@pytest.mark.proves("G-24")
@pytest.mark.parametrize("at", ["infinity", "-infinity", "2201-01-01", "1999-01-01"])
async def test_start_at_which_a_turn_would_never_begin_is_rejected(kernel: Kernel, at: str) -> None:
    await waiting(kernel)
    with pytest.raises(asyncpg.CheckViolationError):
        await kernel.connection.execute(
            f"update heliograph.agent_turns set starts_at = '{at}' where agent_turn_id = 'turn_d2'"
        )


@pytest.mark.proves("G-24")
async def test_upgrade_lets_turns_begin_whose_start_the_constraint_rejects(kernel: Kernel) -> None:
    await waiting(kernel)
    undone = kernel.connection.transaction()
    await undone.start()
    await kernel.connection.execute("alter domain heliograph.start_time drop constraint start_time_check")
    await kernel.connection.execute(
        "update heliograph.agent_turns set starts_at = 'infinity' where agent_turn_id in ('turn_d1', 'turn_d2')"
    )
    await kernel.connection.execute(
        "update heliograph.agent_state_head set due_at = 'infinity' where due_at is not null"
    )
    await kernel.connection.execute(MIGRATION.read_text("utf-8"))
    for turn_id in ("turn_d1", "turn_d2"):
        claimed = await kernel.claim_one()
        assert claimed["turn_id"] == turn_id
        await kernel.finish(claimed)
    await undone.rollback()
