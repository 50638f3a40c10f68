"""The commits of works A and B of the benchmark through a runtime and its worker, where no calls are sent together."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from bench.app import app as noop
from bench.app import calling
from heliograph.execution.signal_buffer import BATCH_SECONDS
from heliograph.ledger.client import Ledger
from tests.runtime.kit import Rig

OF_THE_WORKER = ("beat", "deregister")  # per worker and time, not per item


class Writes:
    """Runs each statement of a pool in a transaction, and notes the functions that wrote."""

    def __init__(self, pool: Any):
        self._pool = pool
        self.functions: list[str] = []

    async def fetch(self, query: str, *args: object) -> list[Any]:
        async with self._pool.acquire() as connection, connection.transaction():
            rows = list(await connection.fetch(query, *args))
            if await connection.fetchval("select pg_current_xact_id_if_assigned() is not null"):
                self.functions += re.findall(r"heliograph\.(\w+)\(", query)
        return rows

    @property
    def of_items(self) -> list[str]:
        return [function for function in self.functions if function not in OF_THE_WORKER]


def counted(rig: Rig) -> Writes:
    """Count the writes of a rig. Signals that wait for others are sent with the next call only: a slow machine would append them before it."""
    rig.runtime.database._runs = writes = Writes(rig.runtime.database._pool)
    sleep = rig.runtime.world.sleep

    async def sleep_without_batches(seconds: float) -> None:
        await (asyncio.Event().wait() if seconds == BATCH_SECONDS else sleep(seconds))

    rig.runtime.world.sleep = sleep_without_batches
    return writes


async def test_item_of_work_a_makes_three_commits(rig: Rig) -> None:
    writes = counted(rig)
    assert (await rig.run(noop)).outcome == "success"
    assert writes.of_items == ["start_runs", "claim", "finish"]


async def test_item_of_work_b_makes_six_commits(rig: Rig) -> None:
    writes = counted(rig)
    elsewhere = Ledger(rig.runtime.world, rig.runtime.ledger.project)  # of a process without a worker
    run_id = await rig.start(calling)
    async with rig.serving(calling):
        await report_result(rig, elsewhere)
        await rig.ended(run_id)
    assert writes.of_items == ["start_runs", "claim", "suspend", "report", "claim", "finish"]


async def report_result(rig: Rig, ledger: Ledger) -> None:
    turn = await rig.turn_of("asker", "suspended")
    item = {"turn_id": turn.turn_id, "call_id": "c1", "status": "success", "result": 2}
    assert (await ledger.report(item)).outcome == "applied"
