"""The view of turns: the epoch of each, found without reading the other leases of its agent, of which a session has thousands."""

from __future__ import annotations

import json
from typing import Any

from tests.kernel.kit import Kernel

TURNS = 12
OF_RUN = "select turn_id, turn_epoch from heliograph.turn_overview where project_id = $1 and run_id = 'run_a'"


async def _with_turns(kernel: Kernel) -> None:
    """An agent that has ended `TURNS` turns, one of them after a second lease, runs another one, and has one more in its queue."""
    claimed = await kernel.running()
    for n in range(TURNS):
        await kernel.enqueue("run_a", "writer", f"turn_{n}")
        if n == 5:
            kernel.wait(31)
            await kernel.sweep("leases")
            claimed = await kernel.claim_one()
        version = (await kernel.run("run_a"))["version"]
        assert (await kernel.finish(claimed, version=version))["outcome"] == "ok"
        claimed = await kernel.claim_one()
    await kernel.enqueue("run_a", "writer", "turn_last")
    await kernel.enqueue("run_a", "writer", "turn_stopped")
    assert (await kernel.stop("turn_stopped"))["outcome"] == "stopped"


async def test_epoch_of_a_turn_is_that_of_its_last_lease(kernel: Kernel) -> None:
    await _with_turns(kernel)
    found = {row["turn_id"]: row["turn_epoch"] for row in await kernel.connection.fetch(OF_RUN, kernel.project)}
    leases = "select agent_turn_id, max(turn_epoch) as epoch from heliograph.leases where project_id = $1 group by 1"
    epochs = {row["agent_turn_id"]: row["epoch"] for row in await kernel.connection.fetch(leases, kernel.project)}
    assert found == {**epochs, "turn_last": None, "turn_stopped": None}
    assert len(epochs) == TURNS + 1


async def test_view_of_turns_reads_one_lease_of_each(kernel: Kernel) -> None:
    await _with_turns(kernel)
    for condition, most in (("and turn_id = 'turn_7'", 1), ("", TURNS + 3)):
        plan = await kernel.connection.fetchval(f"explain (analyze, format json) {OF_RUN} {condition}", kernel.project)
        assert _rows_of_leases(json.loads(plan)[0]["Plan"] if isinstance(plan, str) else plan[0]["Plan"]) <= most


def _rows_of_leases(plan: dict[str, Any]) -> int:
    """How many rows of the leases a plan has read."""
    own = 0
    if plan.get("Relation Name") == "leases":
        own = round((plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)) * plan["Actual Loops"])
    return own + sum(map(_rows_of_leases, plan.get("Plans", ())))
