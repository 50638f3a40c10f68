"""Manage the rights of logins: their service roles with limits on locks, and the projects to which they are bound.

All functions need the connection of an operator. Roles belong to the cluster, bindings to the database.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from heliograph.errors import NotFound, Rejected
from heliograph.ledger.install import OWNER, read_owner

SERVICES = ("worker", "api", "reader", "subscriber")

_LOGINS = """
select r.rolname::text as name, r.rolsuper or pg_has_role(r.oid, $1::text, 'member') as is_operator,
       array(select s.name from unnest($2::text[]) with ordinality s (name, n)
              where pg_has_role(r.oid, 'heliograph_' || s.name, 'member') order by s.n) as services,
       array(select g.project_id from heliograph.project_grants g where g.role_name = r.rolname order by 1) as projects
  from pg_roles r
 where r.rolname !~ '^(pg|heliograph)_' and (r.rolcanlogin or r.rolname in (select g.role_name from heliograph.project_grants g))
 order by r.rolname
"""
_BIND = "select heliograph.grant_project($1, $2, clock_timestamp())"
_UNBIND = "select heliograph.revoke_project($1, $2)"
_GRANT_SIGNALS = "select heliograph.grant_signals($1, $2, $3, clock_timestamp())"
_REVOKE_SIGNALS = "select heliograph.revoke_signals($1, $2, $3)"
_SIGNALS = """
select g ->> 'pattern' as pattern from jsonb_array_elements(heliograph.list_signal_grants($1)) with ordinality e (g, n)
 where g ->> 'login' = $2 order by n
"""
# A login without settings of its own gets those of the role: PostgreSQL inherits rights, but not settings.
_BOUNDS = """
select format('alter role %I set %s = %L', $1::text, split_part(c, '=', 1), substr(c, strpos(c, '=') + 1))
  from pg_db_role_setting s cross join unnest(s.setconfig) c
 where s.setdatabase = 0 and s.setrole = to_regrole('heliograph_' || $2)
   and split_part(c, '=', 1) not in (
       select split_part(own, '=', 1) from pg_db_role_setting o cross join unnest(o.setconfig) own
        where o.setdatabase = 0 and o.setrole = (select oid from pg_roles where rolname = $1::text))
 order by 1
"""
# It reads only PostgreSQL's catalog, so every login can run it. It returns one row for each problem.
_OPENINGS = """
select format('row security is not forced on %s', c.oid::regclass) as opening
  from pg_class c
 where c.relnamespace = 'heliograph'::regnamespace and c.relkind = 'r' and not (c.relrowsecurity and c.relforcerowsecurity)
   and exists (select from pg_attribute a where a.attrelid = c.oid and a.attname = 'project_id' and not a.attisdropped)
union all
select format('%s may write %s', r.rolname, c.oid::regclass) from pg_class c cross join pg_roles r
 where c.relnamespace = 'heliograph'::regnamespace and c.relkind in ('r', 'v', 'S')
   and r.rolname in ('heliograph_worker', 'heliograph_api', 'heliograph_reader', 'heliograph_subscriber')
   and case c.relkind when 'S' then has_sequence_privilege(r.oid, c.oid, 'usage, update')
                      else has_table_privilege(r.oid, c.oid, 'insert, update, delete, truncate, references, trigger') end
union all
select format('every login may execute %s', p.oid::regprocedure) from pg_proc p
 where p.pronamespace = 'heliograph'::regnamespace and has_function_privilege('public', p.oid, 'execute')
union all
select format('%s uses the search_path of its caller', p.oid::regprocedure) from pg_proc p
 where p.pronamespace = 'heliograph'::regnamespace and p.prosecdef
   and not coalesce('search_path=pg_catalog, pg_temp' = any (p.proconfig), false)
 order by 1
"""


@dataclass(frozen=True, slots=True)
class Login:
    """A role that may log in. services: from SERVICES. projects: those to which it is bound; operators are never bound.

    signals: by project, the patterns of signals that it may subscribe to; logins with another service than subscriber need none.
    """

    name: str
    is_operator: bool
    services: tuple[str, ...]
    projects: tuple[str, ...]
    signals: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


async def read_logins(connection: Any) -> list[Login]:
    """Read the logins that have rights in this database. Raises Rejected (`no_roles`)."""
    await _check_roles(connection)
    rows = await connection.fetch(_LOGINS, OWNER, list(SERVICES))
    logins = [
        Login(r["name"], r["is_operator"], () if r["is_operator"] else tuple(r["services"]), tuple(r["projects"]))
        for r in rows
    ]
    known = [login for login in logins if login.is_operator or login.services or login.projects]
    return [replace(login, signals=await _signals_of(connection, login)) for login in known]


async def _signals_of(connection: Any, login: Login) -> Mapping[str, tuple[str, ...]]:
    found = {project: await connection.fetch(_SIGNALS, project, login.name) for project in login.projects}
    return {project: tuple(row["pattern"] for row in rows) for project, rows in found.items() if rows}


async def find_openings(connection: Any) -> list[str]:
    """Describe each right that the installed schema grants but should not, for example after a restore."""
    return [row["opening"] for row in await connection.fetch(_OPENINGS)]


async def grant(
    connection: Any, login: str, services: Sequence[str], projects: Sequence[str], signals: Sequence[str] = ()
) -> Login:
    """Bind a login to projects, and grant it services with their limits; return its rights. A second call changes nothing.

    signals: patterns of signals of these projects that it may subscribe to.

    It is one transaction. The binding comes first, so the login never has a service without a binding.
    Raises NotFound (`unknown_role`), Rejected (`no_roles`, `operator`).
    """
    async with connection.transaction():
        await _check_bindable(connection, login)
        for project in projects:
            await connection.fetchval(_BIND, project, login)
            for pattern in signals:
                await connection.fetchval(_GRANT_SIGNALS, project, login, pattern)
        for service in services:
            await _run(connection, f"format('grant heliograph_{service} to %I', $1::text)", login)
            for (statement,) in await connection.fetch(_BOUNDS, login, service):
                await connection.execute(statement)
        return await _read_login(connection, login)


async def revoke(connection: Any, login: str, projects: Sequence[str] | None) -> Login:
    """Revoke projects of a login (None: all of them). A login that loses its last project also loses its services.

    Raises NotFound (`unknown_role`, `not_granted`), Rejected (`no_roles`).
    """
    async with connection.transaction():
        before = await _read_login(connection, login)
        if projects is None:
            await _take_services(connection, before)
        for project in before.projects if projects is None else projects:
            outcome = await connection.fetchval(_UNBIND, project, login)
            if outcome == "last":
                await _take_services(connection, before)
                outcome = await connection.fetchval(_UNBIND, project, login)
            if outcome == "unknown":
                raise NotFound(f"{login} is not bound to project {project}; helio db roles lists its projects",
                               code="not_granted")  # fmt: skip
        return await _read_login(connection, login)


async def revoke_signals(connection: Any, login: str, projects: Sequence[str], signals: Sequence[str]) -> Login:
    """Revoke patterns of signals of these projects; return the rights of the login.

    Raises NotFound (`unknown_role`, `not_granted`), Rejected (`no_roles`).
    """
    async with connection.transaction():
        await _read_login(connection, login)
        for project in projects:
            for pattern in signals:
                if await connection.fetchval(_REVOKE_SIGNALS, project, login, pattern) == "unknown":
                    raise NotFound(f"{login} has no grant of the signals {pattern} in project {project}; helio db roles lists its "
                                   "grants", code="not_granted")  # fmt: skip
        return await _read_login(connection, login)


async def _take_services(connection: Any, login: Login) -> None:
    for service in login.services:
        await _run(connection, f"format('revoke heliograph_{service} from %I', $1::text)", login.name)


async def _read_login(connection: Any, name: str) -> Login:
    await _check_known(connection, name)
    found = [login for login in await read_logins(connection) if login.name == name]
    return found[0] if found else Login(name, is_operator=False, services=(), projects=())


async def _check_bindable(connection: Any, login: str) -> None:
    if (await _read_login(connection, login)).is_operator:
        raise Rejected(f"{login} is an operator of this database and cannot be bound; give the service another login",
                      code="operator")  # fmt: skip


async def _check_known(connection: Any, login: str) -> None:
    if not await connection.fetchval("select true from pg_roles where rolname = $1", login):
        raise NotFound(f"there is no role {login}; create it first: create role {login} login password '...'",
                       code="unknown_role")  # fmt: skip


async def _check_roles(connection: Any) -> None:
    owner = await read_owner(connection)
    if owner != OWNER:
        raise Rejected(
            f"the database has no roles, because {owner}, which installed the schema, may not create any; "
            "run helio db install as a login with createrole", code="no_roles",
        )  # fmt: skip


async def _run(connection: Any, statement: str, *args: str) -> None:
    """Evaluate `statement` on the server, an SQL expression that quotes the names in `args`, and execute the result."""
    await connection.execute(cast("str", await connection.fetchval(f"select {statement}", *args)))
