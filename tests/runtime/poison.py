"""Values that no client can decode, written directly into the ledger; `_check_json` rejects them at every entry."""

from __future__ import annotations

from typing import Any

import asyncpg

HUGE = "1e5000"
DEEP = "[" * 2000 + "]" * 2000
DEEPER_THAN_RECURSION = "[" * 500 + "]" * 500  # can be decoded, and no recursive function survives it
POISONS = {"huge": HUGE, "deep": DEEP, "awkward": DEEPER_THAN_RECURSION}
WHERE = ("inside", "instead")  # inside the value that is there, or in its place

# Each column of JSON: which of its rows belong to the run $1, and how they are poisoned with $2.
_INSIDE = (
    "case jsonb_typeof({0}) when 'object' then {0} || jsonb_build_object('poison', $2::text::jsonb)"
    " when 'array' then {0} || jsonb_build_array($2::text::jsonb) else $2::text::jsonb end"
)
_TURNS = "agent_turn_id in (select agent_turn_id from heliograph.agent_turns where run_id = $1)"
COLUMNS = {
    ("runs", "state"): "run_id = $1",
    ("runs", "memory"): "run_id = $1",
    ("agent_turns", "result_fields"): "run_id = $1",
    ("agent_inbox", "payload"): f"{_TURNS} and payload is not null",
    ("cards", "content"): f"{_TURNS} and not content ? '$blob'",
    ("blobs", "content"): f"blob_id in (select content ->> '$blob' from heliograph.cards where {_TURNS})",
    ("outbox", "body"): _TURNS,
    ("signals", "entries"): "run_id = $1",
    ("memories", "metadata"): "$1::text is not null",
    ("turn_waiting_tools", "reserved"): f"{_TURNS} and reserved is not null",
}
# A constraint admits only values that every client can decode: tests/kernel/test_rate_limits.py, test_circuit_values.py
CONSTRAINED = {("turn_waiting_tools", "circuit"), ("turn_waiting_tools", "rate"), ("rate_buckets", "peaks")}
# Rows of workers belong to no run; only the list of workers reads them.
OF_WORKERS = {("workers", name) for name in ("capabilities", "metadata", "metrics", "pools", "warnings")}
# Only forks read checkpoints; tests/runtime/test_fork_checkpoints.py damages them.
OF_FORKS = {("run_checkpoints", "memory"), ("run_checkpoints", "state")}


async def columns(connection: asyncpg.Connection) -> set[tuple[str, str]]:
    """All columns of tables that hold JSON."""
    rows = await connection.fetch(
        "select c.relname, a.attname from pg_attribute a join pg_class c on c.oid = a.attrelid"
        " join pg_type t on t.oid = a.atttypid"  # typbasetype: of a domain
        " where c.relnamespace = 'heliograph'::regnamespace and c.relkind = 'r' and a.attnum > 0 and not a.attisdropped"
        "   and format_type(coalesce(nullif(t.typbasetype, 0), t.oid), null) ~ 'json'"
    )
    return {(row["relname"], row["attname"]) for row in rows}


async def put(connection: asyncpg.Connection, column: tuple[str, str], run_id: str, poison: str, where: str) -> int:
    """Poison one column of a run's rows; how many rows it was."""
    table, name = column
    value = _INSIDE.format(name) if where == "inside" else "$2::text::jsonb"
    if column == ("signals", "entries"):  # its length is checked
        inner = _INSIDE.format("coalesce(e.e -> 'payload', '{}')") if where == "inside" else "$2::text::jsonb"
        value = (
            f"(select jsonb_agg(e.e || jsonb_build_object('payload', {inner}) order by e.n)"
            "  from jsonb_array_elements(entries) with ordinality e (e, n))"
        )
    elif column == ("memories", "metadata"):
        value = _INSIDE.format(name)
    elif column == ("turn_waiting_tools", "reserved") and where == "instead":
        value = "(select jsonb_object_agg(k, $2::text::jsonb) from jsonb_object_keys(reserved) k)"
    done: Any = await connection.execute(
        f"update heliograph.{table} set {name} = {value} where {COLUMNS[column]}", run_id, poison
    )
    return int(done.split()[1])
