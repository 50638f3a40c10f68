"""A new database is as fast as an old one: plans from the time of empty tables do not read all rows that arrive later.

ANALYZE has not run, and each connection keeps the plans of its first calls (0002_planner.sql)."""

from __future__ import annotations

from typing import Any

import asyncpg

from tests.kernel.kit import Kernel, connect, ending, run_item

RUNS = 400
ROWS_READ_MAX = 60
ROWS_READ = """
select coalesce(sum(seq_tup_read + coalesce(idx_tup_fetch, 0)), 0)
  from pg_stat_xact_user_tables where schemaname = 'heliograph'
"""


async def test_calls_do_not_slow_down_as_the_first_runs_pile_up(database_url: str) -> None:
    kernel = Kernel(await connect(database_url), "new")
    first = await one_run(kernel, 0)
    for n in range(1, 8):  # plans are made, and kept
        await one_run(kernel, n)
    await kernel.call("start_runs", [item(n) for n in range(1000, 1000 + RUNS)])
    last = await one_run(kernel, 8)
    await kernel.connection.close()
    assert first.keys() == last.keys()
    assert {call: read for call, read in last.items() if read > ROWS_READ_MAX} == {}


async def test_planner_statistics_exist_and_no_rows_remain(database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    analyzed = await connection.fetch(
        "select tablename from pg_stats where schemaname = 'heliograph' and attname = 'project_id' and n_distinct = 1"
    )
    tables = await connection.fetch(
        "select table_name from information_schema.columns c join information_schema.tables t using (table_schema, table_name)"
        " where table_schema = 'heliograph' and table_type = 'BASE TABLE' and column_name = 'project_id'"
    )
    # a row or none for each project, login or wire, and always found by key
    few = {"project_limits", "project_grants", "project_wires", "signal_grants", "subscriptions"}
    assert {row[0] for row in analyzed} == {row[0] for row in tables} - few
    for (table,) in tables:
        assert await connection.fetchval(f"select count(*) from heliograph.{table}") == 0
    assert (
        await connection.fetchval(
            "insert into heliograph.agent_inbox (project_id, agent_turn_id, message_type, status, correlation_id,"
            " next_retry_at, created_at) values ('p', 't', 'turn', 'consumed', 's', now(), now()) returning inbox_id"
        )
        == 1
    )
    await connection.close()


async def one_run(kernel: Kernel, number: int) -> dict[str, int]:
    """Start a run, claim a turn, finish it; how many rows each call read."""
    read: dict[str, int] = {}

    async def measured(function: str, *args: Any) -> Any:
        async with kernel.connection.transaction():
            before = await kernel.connection.fetchval(ROWS_READ)
            answer = await kernel.call(function, *args)
            read[function] = int(await kernel.connection.fetchval(ROWS_READ) - before)
        return answer

    await measured("start_runs", [item(number)])
    [claimed] = await measured("claim", [{"target": "newsroom"}], "worker", 1, 30.0)
    [finished] = await measured("finish", [ending(claimed, ends="success")])
    assert finished["outcome"] == "ok"
    return read


def item(number: int) -> dict[str, Any]:
    return run_item(f"run_{number}", ["writer"], {f"turn_{number}": "writer"})
