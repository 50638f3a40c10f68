"""Install the schema: numbered migrations for tables, and one replaceable set of functions and views.

Tables change only through new files in sql/migrations. A released file is never edited; the database stores its checksum. Functions
and views are in sql/kernel, and are replaced as a whole if their checksum differs. An installation is one transaction under an
advisory lock, so installers never run at the same time, and a killed one changes nothing.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from heliograph.errors import Rejected, StoreUnavailable
from heliograph.ledger.operator_grants import grant_again, read_grants
from heliograph.ledger.operator_objects import (
    DEPENDENT,
    in_use,
    reject_dependent_objects,
    reject_lost_objects,
    violated_constraint,
)

OWNER = "heliograph_owner"
_LOCK = 0x68656C696F  # 'helio'
_SECONDS_MAX = 3600.0  # of one statement: a migration may rewrite large tables
# Workers queue behind a statement that waits for a table. So it waits only as long as their own calls do.
_WAIT = "set local lock_timeout = '10s';"
_LOCK_TIMEOUT, _DEADLOCK = "55P03", "40P01"

# During an installation, names resolve to PostgreSQL's own objects and ignore the installer's search_path.
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

# One statement for all views and one for all functions, because a cascade may drop further ones. Types come last: arguments have them.
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
    for v_drop in
        select 'drop type ' || c.oid::regclass::text
          from pg_class c where c.relnamespace = 'heliograph'::regnamespace and c.relkind = 'c' order by c.oid
    loop
        execute v_drop;
    end loop;
end $$;
"""

# Forced row security also applies to an owner who is not a superuser. 96_roles.sql forces it again.
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
    """One file of sql/migrations."""

    version: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class SchemaState:
    """The schema version of a database and the one that this program needs. `installed` is 0 without a schema."""

    installed: int
    needed: int
    kernel_is_current: bool

    @property
    def is_current(self) -> bool:
        return self.installed == self.needed and self.kernel_is_current


def migrations() -> list[Migration]:
    """Return all migrations, the oldest first."""
    folder = files("heliograph.ledger").joinpath("sql/migrations")
    sql_files = sorted((f for f in folder.iterdir() if f.name.endswith(".sql")), key=lambda f: f.name)
    return [Migration(int(f.name[:4]), f.name[5:-4], f.read_text("utf-8")) for f in sql_files]


def kernel_sql() -> str:
    """Return the SQL of all functions and views, in the order of installation."""
    folder = files("heliograph.ledger").joinpath("sql/kernel")
    return "\n".join(
        f.read_text("utf-8") for f in sorted(folder.iterdir(), key=lambda f: f.name) if f.name.endswith(".sql")
    )


def roles_sql() -> str:
    """Return the part of `kernel_sql` with roles and rights."""
    return files("heliograph.ledger").joinpath("sql/kernel/96_roles.sql").read_text("utf-8")


def whole_sql() -> str:
    """Return the whole schema as one SQL script, which `helio db sql` prints."""
    parts = [_BASE]
    for m in migrations():
        # a savepoint, as in install(): without it the planner takes the tables that 0002 truncates for empty ones
        parts.append(
            f"-- migration {m.version:04d} {m.name}\nsavepoint migration;\n{m.sql}\nrelease savepoint migration;"
        )
        parts.append(
            "insert into heliograph.schema_version (version, name, checksum)\n"
            f"values ({m.version}, '{m.name}', '{m.checksum}') on conflict do nothing;\n"
        )
    parts.append(f"-- functions and views\n{kernel_sql()}\n{_record_kernel()}")
    return f"begin;\n{_PIN}\n" + "\n".join(parts) + "\ncommit;\n"


async def read_state(connection: Any) -> SchemaState:
    """Read the schema version of the database behind an asyncpg connection."""
    needed = migrations()[-1].version
    if await connection.fetchval("select to_regclass('heliograph.schema_version')") is None:
        return SchemaState(0, needed, kernel_is_current=False)
    installed = await connection.fetchval("select coalesce(max(version), 0) from heliograph.schema_version")
    checksum = await connection.fetchval("select max(checksum) from heliograph.kernel_version")
    return SchemaState(installed, needed, checksum == _checksum(kernel_sql()))


async def read_owner(connection: Any) -> str | None:
    """Read the owner of the functions: heliograph_owner, or the installer if it may not create roles."""
    owner = "select nspowner::regrole::text from pg_namespace where nspname = 'heliograph'"
    return await connection.fetchval(owner)  # type: ignore[no-any-return]


async def install(connection: Any) -> list[str]:
    """Upgrade the database to this program's version; return a line for each change. A second call does nothing.

    Raises Rejected (`schema_version`) if the database is newer than the program, or an applied migration was edited,
    StoreUnavailable (`schema_locked`) if another session keeps a table locked, and Conflict (`schema_in_use`) if something that an
    operator has created prevents a migration, or would be lost. Then nothing has changed.
    """
    try:
        return await _install(connection)
    except Exception as error:
        if getattr(error, "sqlstate", None) == DEPENDENT:
            raise in_use(", ".join(str(getattr(error, "detail", None) or error).splitlines())) from error
        if (reason := violated_constraint(error)) is not None:
            raise in_use(reason) from error
        if getattr(error, "sqlstate", None) not in (_LOCK_TIMEOUT, _DEADLOCK):
            raise
        raise StoreUnavailable(
            "the schema is not installed, because another session keeps a lock on it: end long transactions "
            "(pg_stat_activity lists them) or stop the workers, then run helio db install again", code="schema_locked",
        ) from error  # fmt: skip


async def _install(connection: Any) -> list[str]:
    done: list[str] = []
    async with connection.transaction():
        # another installation may take its time
        await connection.execute(f"select pg_advisory_xact_lock({_LOCK}); {_PIN} {_WAIT}", timeout=_SECONDS_MAX)
        state = await read_state(connection)
        if state.is_current:
            return await _add_roles(connection)
        await connection.execute(_BASE)
        applied = {
            r["version"]: r["checksum"] for r in await connection.fetch("select * from heliograph.schema_version")
        }
        _reject_newer(state)
        await reject_dependent_objects(connection)
        grants = await read_grants(connection)
        await connection.execute(_DROP_KERNEL, timeout=_SECONDS_MAX)
        if applied and state.installed < state.needed:
            await connection.execute(_UNBIND, timeout=_SECONDS_MAX)
        for m in migrations():
            if m.version in applied:
                _reject_edited(m, applied[m.version])
                continue
            await reject_lost_objects(connection, m.version)
            async with connection.transaction():  # a savepoint, because 0002 truncates tables that 0001 creates
                await connection.execute(m.sql, timeout=_SECONDS_MAX)
            await connection.execute(
                "insert into heliograph.schema_version (version, name, checksum) values ($1, $2, $3)",
                m.version, m.name, m.checksum,
            )  # fmt: skip
            done.append(f"applied migration {m.version:04d} {m.name}")
        await connection.execute(kernel_sql(), timeout=_SECONDS_MAX)
        await grant_again(connection, grants)
        await connection.execute(_record_kernel())
        done.append("installed the kernel's functions and views")
    return done


async def _add_roles(connection: Any) -> list[str]:
    """Create the missing roles of a schema whose installer was not allowed to create roles."""
    may = "select rolsuper or rolcreaterole from pg_roles where rolname = current_user"
    if await read_owner(connection) == OWNER or not await connection.fetchval(may):
        return []
    await connection.execute(roles_sql())
    return ["created the roles"] if await read_owner(connection) == OWNER else []


def check(state: SchemaState) -> None:
    """Raise Rejected (`schema_missing`, `schema_version`) for a database whose schema this program cannot use."""
    if state.installed == 0:
        raise Rejected("the database has no Heliograph schema: run helio db install", code="schema_missing")
    _reject_newer(state)
    if not state.is_current:
        raise Rejected(
            f"the database has schema version {state.installed}, this program needs {state.needed}"
            f"{'' if state.installed < state.needed else ' with other functions'}: run helio db install",
            code="schema_version",
        )


def _reject_newer(state: SchemaState) -> None:
    if state.installed > state.needed:
        raise Rejected(
            f"the database has schema version {state.installed}, newer than this program's {state.needed}: upgrade heliograph here",
            code="schema_version",
        )


def _reject_edited(migration: Migration, checksum: str) -> None:
    if checksum != migration.checksum:
        raise Rejected(
            f"migration {migration.version:04d} {migration.name} in the database differs from the one in this program; "
            "install the version of heliograph that applied it",
            code="schema_version",
        )


def _checksum(sql: str) -> str:
    return hashlib.sha256(sql.encode()).hexdigest()


def _record_kernel() -> str:
    return (
        f"insert into heliograph.kernel_version (checksum) values ('{_checksum(kernel_sql())}')\n"  # noqa: S608  our own hash
        "on conflict (only_row) do update set checksum = excluded.checksum, applied_at = clock_timestamp();"
    )
