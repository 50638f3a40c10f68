"""The columns that a turn changes are the last ones of their tables, so that an update logs little (decision 0163)."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from heliograph.ledger import install as installer
from heliograph.ledger.install import install, migrations
from tests.kernel.kit import START, Kernel
from tests.kernel.test_install import install_before

MOVED = 61
AT = START.isoformat()
RUN = {
    "project_id": "p", "run_id": "run_a", "target": "newsroom", "status": "ended", "outcome": "failed", "request_hash": "h",
    "state": {"topic": "tides"}, "memory": {"joins": {}}, "version": 7, "signal_seq": 9, "pruned_seq": 2, "open_turns": 0,
    "activations": 4, "pending_reactions": 0, "wakes_on_results": True, "stop_reason": "enough", "rejections": 1, "created_at": AT,
    "updated_at": AT, "ended_at": AT, "recording_tags": ["x"],
}  # fmt: skip
HEAD = {
    "project_id": "p", "agent_id": "run_a/writer", "run_id": "run_a", "agent_name": "writer", "target": "newsroom", "status": "running",
    "phase": "act", "active_agent_turn_id": "turn_a", "turn_epoch": 5, "owner": "worker-1", "lease_until": AT, "priority": 2,
    "ready_at": AT, "waiting_tool_count": 0, "sweep_failures": 1, "moved_at": AT, "terminates": True, "pool": "fast", "activation_seq": 2,
}  # fmt: skip
TURN = {
    "project_id": "p", "agent_turn_id": "turn_a", "agent_id": "run_a/writer", "run_id": "run_a", "queue_seq": 41, "state": "active",
    "message_type": "turn", "priority": 2, "attempts": 1, "max_attempts": 3, "defer_count": 2, "card_count": 6, "depth": 1,
    "cause_seq": 1, "activation_seq": 2, "output_box_id": "box_turn_a", "created_at": AT, "expires_at": AT, "human_wait_time": "00:01:30",
    "pool": "fast",
}  # fmt: skip
DONE = {**TURN, "agent_turn_id": "turn_b", "state": "done", "outcome": "partial", "deliverable_card_id": "card:turn_b:end", "finished_at": AT}  # fmt: skip
MESSAGE = {
    "project_id": "p", "agent_turn_id": "turn_a", "inbox_id": 17, "agent_id": "run_a/writer", "message_type": "turn", "status": "consumed",
    "turn_epoch": 5, "correlation_id": "sig_run_a_1", "applied": False, "next_retry_at": AT, "retry_count": 1, "created_at": AT,
    "consumed_at": AT,
}  # fmt: skip
CALL = {
    "project_id": "p", "agent_turn_id": "turn_a", "tool_call_id": "c1", "agent_id": "run_a/writer", "run_id": "run_a", "position": 3,
    "tool": "search", "kind": "tool", "effect": "once", "state": "resolved", "epoch": 5, "after_execution": "suspend", "may_override": False,
    "status": "success", "result_card_id": "card_1", "resolved_position": 1, "duplicates": 0, "opened_at": AT, "resolved_at": AT,
    "fails_fast": False, "is_trusted": False, "opened_seq": 3, "resolved_seq": 4,
}  # fmt: skip
ROWS = (
    ("runs", RUN), ("agent_state_head", HEAD), ("agent_turns", TURN), ("agent_turns", DONE), ("agent_inbox", MESSAGE),
    ("turn_waiting_tools", CALL),
)  # fmt: skip
TABLES = sorted({table for table, _ in ROWS})

# what a migration must not change: types, defaults, indexes and constraints
DEFINITIONS = """
select format('%s.%s %s collate %s, not null: %s, default %s', a.attrelid::regclass, a.attname, format_type(a.atttypid, a.atttypmod),
              nullif(a.attcollation, 0)::regcollation, a.attnotnull, pg_get_expr(d.adbin, d.adrelid))
  from pg_attribute a join pg_class c on c.oid = a.attrelid left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
 where c.relnamespace = 'heliograph'::regnamespace and c.relkind = 'r' and a.attnum > 0 and not a.attisdropped
union all
select pg_get_indexdef(i.indexrelid) from pg_index i join pg_class c on c.oid = i.indrelid where c.relnamespace = 'heliograph'::regnamespace
union all
select format('%s %s %s', conrelid::regclass, conname, pg_get_constraintdef(oid)) from pg_constraint
 where connamespace = 'heliograph'::regnamespace order by 1
"""


async def _read(connection: asyncpg.Connection) -> dict[str, list[Any]]:
    read = "select to_jsonb(t) from heliograph.{} t order by to_jsonb(t)::text"
    return {table: [row for (row,) in await connection.fetch(read.format(table))] for table in TABLES}


async def _definitions(connection: asyncpg.Connection) -> list[str]:
    return [row for (row,) in await connection.fetch(DEFINITIONS)]


@pytest.mark.more
async def test_upgrade_that_moves_columns_keeps_rows_types_indexes_and_constraints(
    connection: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await install_before(MOVED, connection, monkeypatch)
    for table, row in ROWS:
        insert = f"insert into heliograph.{table} overriding system value select * from jsonb_populate_record(null::heliograph.{table}, $1)"
        await connection.execute(insert, row)
    rows, definitions = await _read(connection), await _definitions(connection)
    upto = [each for each in migrations() if each.version <= MOVED]
    with monkeypatch.context() as patched:
        patched.setattr(installer, "migrations", lambda: upto)
        patched.setattr(installer, "kernel_sql", lambda: "select 'an older kernel';")
        await install(connection)
    assert await _read(connection) == rows
    assert await _definitions(connection) == definitions
    # the numbers of turns continue
    assert await connection.fetchval("select pg_get_serial_sequence('heliograph.agent_turns', 'queue_seq')") is not None


@pytest.mark.more
@pytest.mark.parametrize(("table", "row"), [ROWS[1], ROWS[3], *ROWS[4:]], ids=["head", "turn", "message", "call"])
async def test_upgrade_that_moves_columns_keeps_rows_of_a_run_that_is_gone(
    connection: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch, table: str, row: dict[str, Any]
) -> None:
    with monkeypatch.context() as patched:
        await install_before(MOVED, connection, patched)
    insert = f"insert into heliograph.{table} overriding system value select * from jsonb_populate_record(null::heliograph.{table}, $1)"
    await connection.execute(insert, row)
    await install(connection)
    assert await connection.fetchval(f"select count(*) from heliograph.{table}") == 1


async def test_columns_that_a_turn_changes_are_the_last_of_their_tables(kernel: Kernel) -> None:
    last = {
        "runs": {"state", "version", "signal_seq", "updated_at", "ended_at", "open_turns", "pending_reactions", "status", "outcome", "memory"},
        "agent_state_head": {"turn_epoch", "moved_at", "lease_until", "status", "phase", "owner", "waiting_tool_count", "active_agent_turn_id"},
        "agent_turns": {"finished_at", "card_count", "state", "outcome"},
        "agent_inbox": {"turn_epoch", "status", "consumed_at"},
        "turn_waiting_tools": {"resolved_at", "resolved_position", "state", "status", "resolved_seq"},
    }  # fmt: skip
    fixed = {
        "runs": {"target", "request_hash", "created_at"},
        "agent_state_head": {"run_id", "target", "pool", "priority"},
        "agent_turns": {"run_id", "cause_seq", "expires_at", "max_attempts"},
        "agent_inbox": {"message_type", "correlation_id", "created_at"},
        "turn_waiting_tools": {"tool", "kind", "epoch", "opened_at"},
    }
    rows = await kernel.connection.fetch(
        "select c.relname, a.attname, a.attnum from pg_attribute a join pg_class c on c.oid = a.attrelid"
        " where c.relnamespace = 'heliograph'::regnamespace and a.attnum > 0"
    )
    places = {(row["relname"], row["attname"]): row["attnum"] for row in rows}
    for table, names in last.items():
        assert max(places[table, name] for name in fixed[table]) < min(places[table, name] for name in names)
