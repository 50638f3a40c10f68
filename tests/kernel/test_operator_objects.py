"""Objects that an operator has created on the schema are neither lost by an upgrade nor the cause of a raw error."""

from __future__ import annotations

import re

import asyncpg
import pytest

from heliograph.errors import Conflict
from heliograph.ledger.install import Migration, install, migrations, read_state
from heliograph.ledger.operator_objects import DROPPED, TABLE
from tests.kernel.schema_objects import objects
from tests.kernel.test_changing_columns import MOVED
from tests.kernel.test_install import install_before

CREATED = {
    "view": ("create view public.waiting as select status from heliograph.runs", "view .*waiting depends on column status of table heliograph.runs"),
    "trigger": (
        "create function public.seen() returns trigger language plpgsql as $$ begin return new; end $$;"
        " create trigger seen after update of state on heliograph.agent_turns for each row when (new.state is not null)"
        " execute function public.seen()",
        "trigger seen on table heliograph.agent_turns depends on column state of table heliograph.agent_turns",
    ),
    "statistics": (
        "create statistics public.paired (dependencies) on status, target from heliograph.agent_state_head",
        "migration 0061 would drop statistics object public.paired",
    ),
    "statistics of an expression": (
        "create statistics public.lower on lower(status) from heliograph.agent_state_head",
        "migration 0061 would drop statistics object public.lower",
    ),
    "grant": (
        "grant select (status, created_at) on heliograph.runs to public",
        "migration 0061 would drop grants on column status of table heliograph.runs",
    ),
    "unique constraint": (
        "alter table heliograph.agent_turns add constraint one_deliverable unique (deliverable_card_id)",
        "migration 0061 would drop constraint one_deliverable on table heliograph.agent_turns",
    ),
}  # fmt: skip

# objects of columns that 0068 to 0070 drop, and of the table that 0067 drops
CREATED_LATER = {
    "index": (68, "create index mine on heliograph.agent_inbox (agent_id)", "index heliograph.mine"),
    "index of an expression": (68, "create index mine on heliograph.agent_inbox (lower(agent_id))", "index heliograph.mine"),
    "partial index": (
        68, "create index mine on heliograph.agent_inbox (status) where payload_card_id is null", "index heliograph.mine",
    ),
    "statistics": (
        68, "create statistics public.st (dependencies) on agent_id, message_type from heliograph.agent_inbox", "statistics object public.st",
    ),
    "check": (
        68, "alter table heliograph.agent_inbox add constraint mine check (agent_id <> '') not valid",
        "constraint mine on table heliograph.agent_inbox",
    ),
    "index of calls": (69, "create index mine on heliograph.turn_waiting_tools (run_id)", "index heliograph.mine"),
    "column grant": (
        68, "grant select (agent_id) on heliograph.agent_inbox to public", "grants on column agent_id of table heliograph.agent_inbox",
    ),
    "index of a turn": (70, "create index mine on heliograph.agent_turns (deliverable_card_id)", "index heliograph.mine"),
    "index of a table": (67, "create index mine on heliograph.execution_edges (run_id)", "index heliograph.mine"),
    "check of a table": (
        67, "alter table heliograph.execution_edges add constraint mine check (edge_id > 0)", "constraint mine on table heliograph.execution_edges",
    ),
    "trigger of a table": (
        67, "create function public.seen() returns trigger language plpgsql as $$ begin return new; end $$;"
        " create trigger seen after insert on heliograph.execution_edges for each row execute function public.seen()",
        "trigger seen on table heliograph.execution_edges",
    ),
    "rule of a table": (
        67, "create rule unseen as on delete to heliograph.execution_edges do instead nothing",
        "rule unseen on table heliograph.execution_edges",
    ),
    "policy of a table": (
        67, "create policy mine on heliograph.execution_edges for select to public using (edge_id > 0)",
        "policy mine on table heliograph.execution_edges",
    ),
    "grant of a table": (
        67, "grant select on heliograph.execution_edges to public", "grants on table heliograph.execution_edges",
    ),
}  # fmt: skip


@pytest.mark.more
@pytest.mark.parametrize("kind", CREATED)
async def test_migration_of_columns_names_what_an_operator_has_created(
    connection: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    await install_before(MOVED, connection, monkeypatch)
    statement, message = CREATED[kind]
    await connection.execute(statement)
    with pytest.raises(Conflict, match=f"{message}.*run helio db install, then create them again") as raised:
        await install(connection)
    assert raised.value.code == "schema_in_use"
    assert (await read_state(connection)).installed < MOVED


@pytest.mark.more
@pytest.mark.parametrize("kind", CREATED_LATER)
async def test_migration_that_drops_names_what_an_operator_has_created(
    connection: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    version, statement, message = CREATED_LATER[kind]
    await install_before(version, connection, monkeypatch)
    await connection.execute(statement)
    with pytest.raises(
        Conflict,
        match=f"migration {version:04d} would drop {message}. Drop the objects and revoke the grants of your programs",
    ) as raised:
        await install(connection)
    assert raised.value.code == "schema_in_use"
    assert (await read_state(connection)).installed < version


@pytest.mark.more
async def test_index_and_check_of_an_operator_survive_a_migration_that_moves_their_columns(
    connection: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await install_before(MOVED, connection, monkeypatch)
    await connection.execute("create index mine on heliograph.agent_inbox (status, consumed_at)")
    await connection.execute("alter table heliograph.runs add constraint mine check (version >= 0)")
    await install(connection)
    assert await connection.fetchval("select to_regclass('heliograph.mine') is not null")
    assert await connection.fetchval("select count(*) from pg_constraint where conname = 'mine'") == 1


# objects of views and functions, which each upgrade replaces
DEPENDENT = {
    "view": ("create view public.mine as select run_id from heliograph.run_overview", "view public.mine depends"),
    "materialized view": (
        "create materialized view public.mine as select run_id from heliograph.run_overview", "materialized view public.mine depends",
    ),
    "trigger of a view": (
        "create function public.seen() returns trigger language plpgsql as $$ begin return new; end $$;"
        " create trigger mine instead of update on heliograph.run_overview for each row execute function public.seen()",
        "trigger mine on view heliograph.run_overview depends",
    ),
    "function": (
        "create function public.mine() returns setof heliograph.run_overview language sql as 'select * from heliograph.run_overview'",
        r"function public.mine\(\) depends",
    ),
    "default and check": (
        "create table public.mine (is_ours boolean default heliograph._is_reserved('x') check (heliograph._is_reserved('y') = is_ours))",
        "constraint mine_is_ours_check on table public.mine, default value for column is_ours of table public.mine depend",
    ),
    "column": ("create table public.mine (runs heliograph.run_overview[])", "column runs of table public.mine depends"),
    "policy of a table": (
        "create policy mine on heliograph.runs using (heliograph._is_reserved(run_id))", "policy mine on table heliograph.runs depends",
    ),
}  # fmt: skip


@pytest.mark.more
@pytest.mark.parametrize("kind", DEPENDENT)
async def test_upgrade_names_what_depends_on_a_view_or_function_and_drops_nothing(
    connection: asyncpg.Connection, kind: str
) -> None:
    await install(connection)
    statement, message = DEPENDENT[kind]
    await connection.execute(statement)
    await connection.execute("update heliograph.kernel_version set checksum = 'an older kernel'")
    before = await objects(connection)
    with pytest.raises(Conflict, match=f"{message}.*run helio db install, then create them again") as raised:
        await install(connection)
    assert raised.value.code == "schema_in_use"
    assert await objects(connection) == before


@pytest.mark.more
async def test_constraint_that_a_migration_violates_is_named(
    connection: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await install_before(52, connection, monkeypatch)
    await connection.execute(
        """insert into heliograph.runs (project_id, run_id, target, status, request_hash, state, memory, created_at, updated_at)
           values ('project', 'a', 'newsroom', 'running', '', '{}', '{}', now(), now());
           insert into heliograph.recordings (project_id, run_id, tags, at) values ('project', 'a', '{}', now());
           alter table heliograph.runs add constraint mine check (target <> 'newsroom') not valid"""
    )
    with pytest.raises(
        Conflict, match=r"mine on table heliograph\.runs rejects a row that a migration writes\. Drop"
    ) as raised:
        await install(connection)
    assert raised.value.code == "schema_in_use"
    await connection.execute("alter table heliograph.runs drop constraint mine")
    await install(connection)


def test_list_has_each_column_and_table_that_a_migration_drops() -> None:
    recent = [each for each in migrations() if each.version > 60]
    found = {each.version: _dropped(each) for each in recent}
    listed = {version: {t: set(c.split()) for t, c in tables.items()} for version, tables in DROPPED.items()}
    assert {version: tables for version, tables in found.items() if tables} == listed


def _dropped(migration: Migration) -> dict[str, set[str]]:
    """The columns and tables that a migration drops; those that 0061 moves, from the list that it has itself."""
    sql = re.sub(r"--[^\n]*", "", migration.sql)
    found = {table: {TABLE} for table in re.findall(r"drop table (?:if exists )?heliograph\.(\w+)", sql)}
    if migration.version == MOVED:
        lists = re.findall(r"'heliograph\.(\w+)'(?:::regclass)?,\s*'\{([\w,]+)\}'", re.sub(r"'\s*\n\s*'", "", sql))
        return {table: set(columns.split(",")) for table, columns in lists}
    for table, changes in re.findall(r"alter table (?:only )?heliograph\.(\w+)([^;]*)", sql):
        if columns := set(re.findall(r"drop column (?:if exists )?(\w+)", changes)):
            found[table] = found.get(table, set()) | columns
    assert sum(map(len, found.values())) == len(re.findall(r"drop (?:column|table)\b", sql)), migration.name
    return found
