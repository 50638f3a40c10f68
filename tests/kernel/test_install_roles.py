"""Installation creates roles once per cluster; without the right to create them, the installer owns everything."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import asyncpg
import pytest

from heliograph.ledger import install as installer
from heliograph.ledger.install import OWNER, Migration, install, migrations, read_owner, read_state, whole_sql
from heliograph.ledger.roles import SERVICES, find_openings, grant, read_logins
from heliograph.testing.database import TestServer
from tests.kernel.filled import fill
from tests.kernel.kit import Kernel, connect
from tests.logins import PASSWORD, of

_numbers = itertools.count(1)
ROLES = ["heliograph_api", OWNER, "heliograph_reader", "heliograph_subscriber", "heliograph_views", "heliograph_worker"]


@pytest.fixture(scope="module")
def cluster(postgres: TestServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestServer]:
    """A server of the same version in which nothing was ever installed."""
    server = TestServer(tmp_path_factory.mktemp("cluster"), postgres.version)
    yield server
    server.close()


@asynccontextmanager
async def database(server: TestServer, owner: str = "") -> AsyncIterator[str]:
    name = f"roles_{next(_numbers)}"
    outside = await asyncpg.connect(server.admin_url)
    await outside.execute(f"create database {name} {f'owner {owner}' if owner else ''}")
    yield server.url(name)
    await outside.execute(f"drop database {name} with (force)")
    await outside.close()


async def roles(connection: asyncpg.Connection) -> list[str]:
    return [
        r[0]
        for r in await connection.fetch("select rolname::text from pg_roles where rolname ~ '^heliograph_' order by 1")
    ]


async def forget_roles(server: TestServer) -> None:
    """As in a cluster in which nothing was ever installed."""
    outside = await asyncpg.connect(server.admin_url)
    for name in await roles(outside):
        await outside.execute(f"drop owned by {name}; drop role {name}")
    await outside.close()


@asynccontextmanager
async def someone(server: TestServer, rights: str = "") -> AsyncIterator[str]:
    """A login that is no superuser."""
    name = f"someone_{next(_numbers)}"
    outside = await asyncpg.connect(server.admin_url)
    await outside.execute(f"create role {name} login password '{PASSWORD}' nosuperuser {rights}")
    yield name
    await outside.execute(f"drop owned by {name} cascade; drop role {name}")
    await outside.close()


async def lives(connection: asyncpg.Connection) -> None:
    """The kernel does its work for this connection, and finds nothing wrong with it."""
    kernel = Kernel(connection, "project")
    await connection.execute("set heliograph.project = 'project'")  # the views show the named project
    await fill(kernel)
    assert await kernel.checks() == []


@pytest.mark.more
@pytest.mark.proves("S2")
async def test_databases_of_one_cluster_may_be_installed_at_once(cluster: TestServer) -> None:
    await forget_roles(cluster)
    async with (
        database(cluster) as one,
        database(cluster) as two,
        database(cluster) as three,
        database(cluster) as four,
    ):
        urls = [one, two, three, four]
        connections = [await connect(url) for url in urls]
        done = await asyncio.gather(*map(install, connections))
        assert [len(each) for each in done] == [len(migrations()) + 1] * 4
        assert await roles(connections[0]) == ROLES
        for connection in connections:
            assert (await read_owner(connection), await find_openings(connection)) == (OWNER, [])
            assert await install(connection) == []
            await lives(connection)
            await connection.close()


@pytest.mark.more
@pytest.mark.proves("S2")
async def test_installer_with_createrole_installs_and_grants_roles_without_superuser(cluster: TestServer) -> None:
    await forget_roles(cluster)
    async with someone(cluster, "createrole") as admin, database(cluster, admin) as url:
        connection = await connect(of(url, admin))
        assert len(await install(connection)) == len(migrations()) + 1
        assert (await read_owner(connection), await roles(connection)) == (OWNER, ROLES)
        assert await find_openings(connection) == []
        await connection.execute(f"create role service_{admin} login password '{PASSWORD}'")
        await grant(connection, f"service_{admin}", SERVICES, ["project"])
        service = await connect(of(url, f"service_{admin}"))
        assert (await Kernel(service, "project", datetime.now(UTC)).running())["turn_id"] == "turn_a"
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="no project other"):
            await service.fetchval("select heliograph.doctor('other', false)")
        await service.close()
        await connection.execute("update heliograph.kernel_version set checksum = 'an older kernel'")
        assert await install(connection) == ["installed the kernel's functions and views"]
        assert [login.name for login in await read_logins(connection) if login.projects] == [f"service_{admin}"]
        await connection.close()
        outside = await connect(url)
        await outside.execute(
            f"drop owned by service_{admin}; drop role service_{admin}; reassign owned by {admin} to current_user"
        )
        await outside.close()


@pytest.mark.more
@pytest.mark.proves("S2", "S1")
async def test_installer_without_createrole_keeps_all_rights_until_roles_exist(cluster: TestServer) -> None:
    async with someone(cluster) as poor, database(cluster, poor) as url:
        connection = await connect(of(url, poor))
        assert len(await install(connection)) == len(migrations()) + 1
        assert await read_owner(connection) == poor
        assert await find_openings(connection) == []  # row security binds this owner as well
        await lives(connection)
        assert await connection.fetchval("select count(*) from heliograph.runs") > 0
        await connection.execute("set heliograph.project = 'another'")
        assert await connection.fetchval("select count(*) from heliograph.runs") == 0
        assert await install(connection) == []

        superuser = await connect(url)
        before = await Kernel(superuser, "project").everything()
        assert await install(superuser) == ["created the roles"]
        assert await read_owner(superuser) == OWNER
        assert await install(superuser) == []
        assert await Kernel(superuser, "project").everything() == before
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.fetchval("select heliograph.doctor('project', false)")
        await grant(superuser, poor, ["worker", "api"], ["project"])
        assert await Kernel(connection, "project").checks() == []
        assert (
            await connection.fetchval("select count(*) from heliograph.run_overview where project_id = 'project'") == 0
        )
        await connection.execute("set heliograph.project = 'project'")
        assert await connection.fetchval("select count(*) from heliograph.run_overview") > 0
        await superuser.close()
        await connection.close()


@pytest.mark.more
@pytest.mark.proves("S2")
async def test_operator_without_superuser_migrates_rows_of_all_projects(
    cluster: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with someone(cluster) as operator, database(cluster, operator) as url:
        superuser = await connect(url)
        await install(superuser)
        await lives(superuser)
        await superuser.execute(
            f"grant {OWNER}, heliograph_views to {operator}; grant create on database {url.rsplit('/')[-1].split('?')[0]} to {operator}"
        )
        known = migrations()
        later = Migration(known[-1].version + 1, "later", "update heliograph.runs set target = 'moved'")
        connection = await connect(of(url, operator))
        with monkeypatch.context() as patched:
            patched.setattr(installer, "migrations", lambda: [*known, later])
            assert len(await install(connection)) == 2
            assert (await read_state(connection)).is_current
        assert {row[0] for row in await superuser.fetch("select target from heliograph.runs")} == {"moved"}
        assert await find_openings(connection) == []
        await connection.close()
        await superuser.close()


@pytest.mark.more
@pytest.mark.proves("S2")
async def test_objects_in_the_search_path_of_the_installer_are_not_used(cluster: TestServer) -> None:
    async with database(cluster) as url:
        connection = await connect(url)
        await connection.execute("""
            create function public.coalesced(text, text) returns boolean language sql as 'select true';
            create operator public.= (leftarg = text, rightarg = text, function = public.coalesced);
            create function public.jsonb_typeof(jsonb) returns text language sql as $$ select 'stolen' $$;
            create domain public.jsonb as text;
            create domain pg_temp.text as pg_catalog.text check (false);
            set search_path = public, pg_catalog;
        """)
        assert len(await install(connection)) == len(migrations()) + 1
        foreign = await connection.fetch(
            "select distinct refclassid::regclass::text, refobjid from pg_depend d"
            " where (d.classid, d.objid) in (select 'pg_rewrite'::regclass, w.oid from pg_rewrite w join pg_class c on c.oid = w.ev_class"
            "                                 where c.relnamespace = 'heliograph'::regnamespace"
            "                                union all select 'pg_policy'::regclass, oid from pg_policy)"
            "   and d.refobjid in (select oid from pg_proc where pronamespace = 'public'::regnamespace"
            "                      union all select oid from pg_operator where oprnamespace = 'public'::regnamespace)"
        )
        assert foreign == []
        assert await connection.fetchval("show search_path") == "public, pg_catalog"  # given back
        await connection.close()


def test_schema_file_pins_its_path_and_ends_with_the_roles() -> None:
    text = whole_sql()
    assert text.startswith("begin;\nset local search_path = pg_catalog, pg_temp;\n")
    assert text.index("create policy project") > text.rindex("create function")
