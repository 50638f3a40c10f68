"""Install the kernel: numbered migrations for tables, one replaceable set of functions and views.

Tables change only by a new file in sql/migrations; a file once released is
never edited, and its checksum is kept to prove it. Functions and views live in
sql/kernel and are replaced as a whole whenever their checksum differs. All of it
is one transaction under an advisory lock: two installers never mix, and a
killed one leaves nothing behind.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from heliograph.errors import Rejected

OWNER = "heliograph_owner"
_LOCK = 0x68656C696F  # 'helio'

# What is parsed while installing is parsed as ours, whatever the installer's own search_path has to offer.
_PIN = "set local search_path = pg_catalog, pg_temp;"

_BASE = """
create schema if not exists heliograph;
create table if not exists heliograph.schema_version (
    version    integer primary key,
    name       text not null,
    checksum   text not null,
    applied_at timestamptz not null default clock_timestamp()
);
create table if not exists heliograph.kernel_version (
    only_row   boolean primary key default true check (only_row),
    checksum   text not null,
    applied_at timestamptz not null default clock_timestamp()
);
"""

# One statement for all views and one for all functions: a cascade may take the next one with it.
_DROP_KERNEL = """
do $$
declare
    v_drop text;
begin
    for v_drop in
        select 'drop view ' || string_agg(c.oid::regclass::text, ', ') || ' cascade'
          from pg_class c where c.relnamespace = 'heliograph'::regnamespace and c.relkind = 'v' having count(*) > 0
    loop
        execute v_drop;
    end loop;
    for v_drop in
        select 'drop function ' || string_agg(p.oid::regprocedure::text, ', ') || ' cascade'
          from pg_proc p where p.pronamespace = 'heliograph'::regnamespace having count(*) > 0
    loop
        execute v_drop;
    end loop;
end $$;
"""

# For migrations by an operator who is no superuser: the tables bind their owner too. 96_roles.sql binds it again.
_UNBIND = """
do $$
declare
    v_table regclass;
begin
    for v_table in
        select oid from pg_class where relnamespace = 'heliograph'::regnamespace and relforcerowsecurity order by oid
    loop
        execute format('alter table %s no force row level security', v_table);
    end loop;
end $$;
"""


@dataclass(frozen=True, slots=True)
class Migration:
    version: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class SchemaState:
    """What a database has, against what this program needs; `installed` is 0 where nothing is."""

    installed: int
    needed: int
    kernel_is_current: bool

    @property
    def is_current(self) -> bool:
        return self.installed == self.needed and self.kernel_is_current


def migrations() -> list[Migration]:
    """Every migration, oldest first."""
    folder = files("heliograph.ledger").joinpath("sql/migrations")
    found = sorted((f for f in folder.iterdir() if f.name.endswith(".sql")), key=lambda f: f.name)
    return [Migration(int(f.name[:4]), f.name[5:-4], f.read_text("utf-8")) for f in found]


def kernel_sql() -> str:
    """All functions and views, in the order they are applied."""
    folder = files("heliograph.ledger").joinpath("sql/kernel")
    return "\n".join(
        f.read_text("utf-8") for f in sorted(folder.iterdir(), key=lambda f: f.name) if f.name.endswith(".sql")
    )


def roles_sql() -> str:
    """The part of `kernel_sql` that says who may do what."""
    return files("heliograph.ledger").joinpath("sql/kernel/96_roles.sql").read_text("utf-8")


def whole_sql() -> str:
    """The schema as one file, for those who apply SQL by their own means (`helio db sql`)."""
    parts = [_BASE]
    for m in migrations():
        parts.append(f"-- migration {m.version:04d} {m.name}\n{m.sql}")
        parts.append(
            "insert into heliograph.schema_version (version, name, checksum)\n"
            f"values ({m.version}, '{m.name}', '{m.checksum}') on conflict do nothing;\n"
        )
    parts.append(f"-- functions and views\n{kernel_sql()}\n{_record_kernel()}")
    return f"begin;\n{_PIN}\n" + "\n".join(parts) + "\ncommit;\n"


async def read_state(connection: Any) -> SchemaState:
    """What the database behind an asyncpg connection has. Changes nothing."""
    needed = migrations()[-1].version
    if await connection.fetchval("select to_regclass('heliograph.schema_version')") is None:
        return SchemaState(0, needed, kernel_is_current=False)
    installed = await connection.fetchval("select coalesce(max(version), 0) from heliograph.schema_version")
    checksum = await connection.fetchval("select max(checksum) from heliograph.kernel_version")
    return SchemaState(installed, needed, checksum == _checksum(kernel_sql()))


async def read_owner(connection: Any) -> str | None:
    """The role that the functions run as: heliograph_owner, or the installer where that might not make roles."""
    owner = "select nspowner::regrole::text from pg_namespace where nspname = 'heliograph'"
    return await connection.fetchval(owner)  # type: ignore[no-any-return]


async def install(connection: Any) -> list[str]:
    """Bring the database to this program's version; answers what was done, in words. A second call does nothing.

    Raises Rejected (`schema_version`) when the database is newer than the program, or an applied migration was edited.
    """
    done: list[str] = []
    async with connection.transaction():
        await connection.execute(f"select pg_advisory_xact_lock({_LOCK}); {_PIN}")
        state = await read_state(connection)
        if state.is_current:
            return await _add_roles(connection)
        await connection.execute(_BASE)
        applied = {
            r["version"]: r["checksum"] for r in await connection.fetch("select * from heliograph.schema_version")
        }
        _refuse_newer(state)
        await connection.execute(_DROP_KERNEL)
        if applied and state.installed < state.needed:
            await connection.execute(_UNBIND)
        for m in migrations():
            if m.version in applied:
                _refuse_edited(m, applied[m.version])
                continue
            async with connection.transaction():  # a savepoint: 0002 truncates, and that is not the same to a new table
                await connection.execute(m.sql)
            await connection.execute(
                "insert into heliograph.schema_version (version, name, checksum) values ($1, $2, $3)",
                m.version, m.name, m.checksum,
            )  # fmt: skip
            done.append(f"applied migration {m.version:04d} {m.name}")
        await connection.execute(kernel_sql())
        await connection.execute(_record_kernel())
        done.append("installed the kernel's functions and views")
    return done


async def _add_roles(connection: Any) -> list[str]:
    """Give a schema its roles that was installed by somebody who might not make them."""
    may = "select rolsuper or rolcreaterole from pg_roles where rolname = current_user"
    if await read_owner(connection) == OWNER or not await connection.fetchval(may):
        return []
    await connection.execute(roles_sql())
    return ["gave the schema its roles"] if await read_owner(connection) == OWNER else []


def check(state: SchemaState) -> None:
    """Refuse a database that this program cannot work with, naming both versions and the next command."""
    if state.installed == 0:
        raise Rejected("the database has no Heliograph schema: run helio db install", code="schema_missing")
    _refuse_newer(state)
    if not state.is_current:
        raise Rejected(
            f"database {state.installed}, program {state.needed}"
            f"{'' if state.installed < state.needed else ', but other functions'}: run helio db install",
            code="schema_version",
        )


def _refuse_newer(state: SchemaState) -> None:
    if state.installed > state.needed:
        raise Rejected(
            f"database {state.installed}, program {state.needed}: the database is newer; upgrade heliograph here",
            code="schema_version",
        )


def _refuse_edited(migration: Migration, checksum: str) -> None:
    if checksum != migration.checksum:
        raise Rejected(
            f"migration {migration.version:04d} {migration.name} was applied with other contents than this program has; "
            "a released migration is never edited: install the version of heliograph that applied it",
            code="schema_version",
        )


def _checksum(sql: str) -> str:
    return hashlib.sha256(sql.encode()).hexdigest()


def _record_kernel() -> str:
    return (
        f"insert into heliograph.kernel_version (checksum) values ('{_checksum(kernel_sql())}')\n"  # noqa: S608  our own hash
        "on conflict (only_row) do update set checksum = excluded.checksum, applied_at = clock_timestamp();"
    )
