"""A turn writes little to the log of the server (decision 0178)."""

from __future__ import annotations

from statistics import median
from typing import Any

import pytest

from heliograph.ledger.kernel import KERNEL
from tests.kernel.kit import TARGET, Kernel, encoded, ending, run_item

ITEMS = 31
BYTES_MAX = 5650


async def _log_of(kernel: Kernel, function: str, *args: Any) -> int:
    """Call a function of the kernel; return the bytes that it wrote to the log."""
    definition = KERNEL[function]
    given = definition.values([kernel.project, *args], encoded)
    statement = definition.statement(f"${len(given) + 1}::timestamptz")
    plan = await kernel.connection.fetchval(f"explain (analyze, wal, format json) {statement}", *given, kernel.now)
    written: int = plan[0]["Plan"]["WAL Bytes"]
    return written


@pytest.mark.more
async def test_turn_that_starts_and_ends_writes_little_to_the_log(kernel: Kernel) -> None:
    written = []
    for n in range(ITEMS):
        run_id, turn_id = f"run_{n:021}", f"turn_{n:021}"
        item = run_item(run_id, ["noop"], {turn_id: "noop"})
        log = await _log_of(kernel, "start_runs", [item])
        log += await _log_of(kernel, "claim", [{"target": TARGET}], "worker-1", 1, 30)
        (head,) = await kernel.rows("agent_state_head", "turn_epoch", "run_id = $2", run_id)
        claimed = {"agent_id": f"{run_id}/noop", "turn_id": turn_id, "epoch": head["turn_epoch"], "agent": "noop",
                   "activation_id": f"sig_{run_id}_2", "run": {"version": 1}}  # fmt: skip
        written.append(log + await _log_of(kernel, "finish", [ending(claimed, ends="success")]))
    await kernel.publish()
    assert await kernel.checks(quiescent=True) == []
    assert median(written) < BYTES_MAX, written  # the median has no full pages
