"""The budget of commits in docs/internals/kernel.md: each commit waits for the disk, so each one is counted."""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from heliograph.ledger import pool
from tests.kernel.kit import START, TARGET, Item, Kernel, draft, ending, run_item, turn_item


class Counted:
    """Kernel calls, and how many of them were write transactions."""

    def __init__(self, kernel: Kernel):
        self.kernel = kernel
        self.commits = 0

    async def __call__(self, call: Awaitable[Any]) -> Any:
        async with self.kernel.connection.transaction():
            answer = await call
            written = "select pg_current_xact_id_if_assigned() is not null"
            self.commits += await self.kernel.connection.fetchval(written)
        return answer


@pytest.mark.proves("K1", "K8")
async def test_turn_without_tools_makes_three_commits(kernel: Kernel) -> None:
    await kernel.running()
    counted = Counted(kernel)
    await counted(kernel.enqueue("run_a", "critic", "turn_1"))
    claimed = await counted(kernel.claim_one())
    assert (await counted(kernel.finish(claimed)))["outcome"] == "ok"
    assert counted.commits == 3


@pytest.mark.proves("K1", "K8")
async def test_run_of_one_turn_makes_three_commits(kernel: Kernel) -> None:
    counted = Counted(kernel)
    await counted(kernel.start("run_a", ["writer"], {"turn_a": "writer"}))
    await counted(kernel.finish(await counted(kernel.claim_one()), ends="success"))
    assert (counted.commits, (await kernel.run("run_a"))["status"]) == (3, "ended")


@pytest.mark.proves("K1", "K8")
async def test_each_further_turn_of_a_chain_makes_two_commits(kernel: Kernel) -> None:
    claimed = await kernel.running()
    counted = Counted(kernel)
    for n in range(3):
        await counted(kernel.finish(claimed, wakes={f"turn_{n}": "critic"}))
        claimed = await counted(kernel.claim_one())
    assert counted.commits == 6


async def test_batch_makes_one_commit(kernel: Kernel) -> None:
    counted = Counted(kernel)
    items = [run_item(f"run_{n}", ["writer"], {f"turn_{n}": "writer"}) for n in range(20)]
    await counted(kernel.call("start_runs", items))
    claimed: list[Item] = await counted(kernel.claim())
    await counted(kernel.call("finish", [ending(each, ends="success") for each in claimed]))
    assert (counted.commits, len(claimed)) == (3, 20)


@pytest.mark.proves("K20", "S6")
async def test_sweep_without_due_work_writes_nothing(kernel: Kernel) -> None:
    await kernel.running()
    counted = Counted(kernel)
    assert await counted(kernel.claim()) == []
    for kind in ("leases", "expired", "queued", "waits", "reports", "stops"):
        await counted(kernel.sweep(kind))
    for function, args in (
        ("sweep_stuck", (10, "")),
        ("sweep_bells", (0.0,)),
        ("take_callbacks", (10, 30.0)),
        ("sweep_callbacks", (10, 0.0)),
        ("sweep_pending_reactions", ([TARGET], 10)),
        ("read_outbox", (10,)),
        ("read_box", ("box_turn_a", 0, 10)),
        ("prune", (START - timedelta(days=1), 10)),
        ("liveness", ()),
        ("measure", ()),
        ("doctor", (True,)),
    ):
        await counted(kernel.call(function, *args))
    await counted(kernel.call("mark_published", []))
    assert counted.commits == 0


async def test_runtime_call_is_exactly_one_statement(
    shared_url: str, kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries: list[str] = []

    async def listen(connection: asyncpg.Connection) -> None:
        await prepare(connection)
        connection.add_query_logger(lambda record: queries.append(record.query))

    prepare = pool._prepare
    monkeypatch.setattr(pool, "_prepare", listen)
    database = await pool.Database.open(shared_url, size=1)
    queries.clear()
    await database.call("start_runs", kernel.project, [run_item("run_a", ["writer"], {"turn_a": "writer"})])
    (claimed,) = await database.call("claim", kernel.project, [{"target": TARGET}], "worker-1", 1, 30.0)
    await database.call("append", kernel.project, [turn_item(claimed, draft("note", claimed["activation_id"]))])
    (answer,) = await database.call("finish", kernel.project, [ending(claimed, ends="success")])
    await database.close()
    assert answer["outcome"] == "ok"
    kernel_calls = [
        query for query in queries if "heliograph." in query
    ]  # the driver looks up the types of new columns
    assert [query.split("(")[0].removeprefix("select ").removeprefix("* from ") for query in kernel_calls] == [
        f"heliograph.{function}" for function in ("start_runs", "claim", "append", "finish")
    ]
