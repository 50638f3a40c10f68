"""An upgrade replaces views and functions; the rights on them that an operator has granted remain, or are named."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import uuid4

import asyncpg
import pytest
import pytest_asyncio

from heliograph.errors import Conflict
from heliograph.ledger.install import install
from tests.kernel.schema_objects import objects

RIGHTS = """
with acls as (
    select c.oid::regclass::text as name, c.relacl as acl from pg_class c
     where c.relnamespace = 'heliograph'::regnamespace and c.relkind = 'v'
    union all
    select c.oid::regclass || '.' || a.attname, a.attacl from pg_class c join pg_attribute a on a.attrelid = c.oid
     where c.relnamespace = 'heliograph'::regnamespace and c.relkind = 'v'
    union all
    select p.oid::regprocedure::text, p.proacl from pg_proc p where p.pronamespace = 'heliograph'::regnamespace)
select name, g.grantee::regrole::text, g.privilege_type, g.is_grantable from acls cross join aclexplode(acl) g order by 1, 2, 3"""

OLDER = "update heliograph.kernel_version set checksum = 'an older kernel'"


@pytest_asyncio.fixture
async def role(connection: asyncpg.Connection) -> AsyncIterator[str]:
    """A new role, quoted."""
    name = f'"Ops {uuid4().hex}"'
    await connection.execute(f"create role {name}")
    yield name
    await connection.execute(f"reset role; drop owned by {name}; drop role {name}")


@pytest.mark.more
async def test_rights_of_an_operator_on_views_columns_and_functions_survive_an_upgrade(
    connection: asyncpg.Connection, role: str
) -> None:
    await install(connection)
    ours = await connection.fetch(RIGHTS)
    await connection.execute(
        f"""grant usage on schema heliograph to {role};
            grant select on heliograph.turn_overview to {role} with grant option;
            grant select (run_id, status) on heliograph.run_overview to {role};
            grant select on heliograph.wait_overview to public;
            grant execute on function heliograph.liveness, heliograph.bell_key to {role}"""
    )
    granted = await connection.fetch(RIGHTS)
    assert len(granted) == len(ours) + 6
    await connection.execute(OLDER)
    assert await install(connection) == ["installed the kernel's functions and views"]
    assert await connection.fetch(RIGHTS) == granted
    await connection.execute(f"set role {role}")
    assert await connection.fetch("select run_id, status from heliograph.run_overview") == []
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await connection.fetch("select state from heliograph.run_overview")


LOST = {
    "view": (
        "create view heliograph.former as select 1 as one; grant select on heliograph.former to {role}",
        "view heliograph.former",
    ),
    "column": (
        "alter view heliograph.run_overview rename column state to former; grant select (former) on heliograph.run_overview to {role}",
        "column former of view heliograph.run_overview",
    ),
    "function": (
        "create function heliograph.former(text[]) returns text language sql return 'x';"
        " revoke all on function heliograph.former from public;"
        " grant execute on function heliograph.former to {role}",
        r"function heliograph.former\(text\[\]\)",
    ),
}


@pytest.mark.more
@pytest.mark.parametrize("kind", LOST)
async def test_upgrade_names_the_rights_on_what_it_no_longer_has_and_changes_nothing(
    connection: asyncpg.Connection, role: str, kind: str
) -> None:
    await install(connection)
    statements, name = LOST[kind]
    await connection.execute(f"{statements.format(role=role)}; {OLDER}")
    before, rights = await objects(connection), await connection.fetch(RIGHTS)
    with pytest.raises(Conflict, match=f"drop the grants of {role} on {name}. Drop the objects and revoke") as raised:
        await install(connection)
    assert raised.value.code == "schema_in_use"
    assert await objects(connection) == before
    assert await connection.fetch(RIGHTS) == rights
