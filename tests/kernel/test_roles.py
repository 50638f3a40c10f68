"""Service roles execute functions and read views, and nothing else (S2, S18)."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, ClassVar

import asyncpg
import pytest

from heliograph.errors import NotFound, Rejected
from heliograph.ledger.kernel import KERNEL
from heliograph.ledger.roles import SERVICES, find_openings, grant, read_logins, revoke
from tests.kernel.filled import fill
from tests.kernel.foreign_calls import functions
from tests.kernel.kit import Connect, Kernel, answer_of, encoded
from tests.kernel.waits import TOKEN, command, suspended
from tests.logins import connected, login, name_of

# Functions for operators only: they delete data or grant access.
OPERATORS = {
    "set_limits",
    "prune",
    "forget_wire",
    "reset_rate",
    "grant_project",
    "revoke_project",
    "grant_signals",
    "revoke_signals",
}
RELATIONS = (
    "select relname from pg_class where relnamespace = 'heliograph'::regnamespace and relkind = any ($1) order by 1"
)


async def names(connection: asyncpg.Connection, *kinds: str) -> list[str]:
    return [row[0] for row in await connection.fetch(RELATIONS, [kind.encode() for kind in kinds])]


@pytest.mark.proves("S2", "S18")
@pytest.mark.parametrize("services", [("worker",), ("api",), ("reader",), SERVICES], ids=",".join)
async def test_service_writes_no_table_and_reads_none(
    kernel: Kernel, shared_url: str, services: tuple[str, ...]
) -> None:
    await fill(kernel)
    async with login(shared_url, services=services) as url, connected(url) as service:
        await service.execute("select set_config('heliograph.project', $1, false)", kernel.project)
        for relation in await names(kernel.connection, "r", "S"):
            for statement in forbidden(relation):
                with pytest.raises(asyncpg.InsufficientPrivilegeError):
                    await service.execute(statement)
        for view in await names(kernel.connection, "v"):  # some of them are not updatable at all
            for statement in forbidden(view):
                with pytest.raises(
                    (
                        asyncpg.InsufficientPrivilegeError,
                        asyncpg.WrongObjectTypeError,
                        asyncpg.ObjectNotInPrerequisiteStateError,
                    )
                ):
                    await service.execute(statement)
        for table in set(await names(kernel.connection, "r")) - {
            "schema_version",
            "kernel_version",
            "head_transitions",
        }:
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await service.fetch(f"select 1 from heliograph.{table}")
        for statement in ("create table heliograph.mine ()", "alter schema heliograph rename to mine", "drop schema heliograph cascade",
                          "set role heliograph_owner", "set role heliograph_views"):  # fmt: skip
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await service.execute(statement)


def forbidden(relation: str) -> list[str]:
    if relation.endswith("_seq"):
        return [f"select nextval('heliograph.{relation}')", f"select setval('heliograph.{relation}', 1)"]
    some = {
        "bell_secret": "is_only",
        "head_transitions": "move",
        "schema_version": "version",
        "kernel_version": "checksum",
    }.get(relation, "project_id")
    return [
        f"insert into heliograph.{relation} default values", f"update heliograph.{relation} set {some} = {some}",
        f"delete from heliograph.{relation}", f"truncate heliograph.{relation}",
        f"do $$ begin lock table heliograph.{relation}; end $$",
        f"create trigger mine before insert on heliograph.{relation} for each statement execute function heliograph._enter('x')",
        f"alter table heliograph.{relation} disable row level security",
    ]  # fmt: skip


@pytest.mark.proves("S2")
async def test_service_executes_its_own_functions_and_no_private_ones(kernel: Kernel, shared_url: str) -> None:
    may = "select has_function_privilege($1, p.oid, 'execute') from pg_proc p where p.pronamespace = 'heliograph'::regnamespace and p.proname = $2"
    allowed: dict[str, set[str]] = {}
    for function in await functions(kernel.connection):
        allowed[function.name] = {
            service
            for service in SERVICES
            if await kernel.connection.fetchval(may, f"heliograph_{service}", function.name)
        }
    assert {name for name, services in allowed.items() if not services} == OPERATORS
    assert {name for name, services in allowed.items() if "reader" in services} == {
        "read_log",
        "read_recorded",
        "read_open_turns",
        "read_ended_turns",
        "why",
        "why_not",
        "read_shared_log",
        "first_failure",
        "read_tree",
        "read_graph",
        "read_box",
        "read_conversation",
        "recall",
        "doctor",
        "liveness",
        "measure",
        "list_workers",
        "bell_key",
        "list_subscriptions",
        "list_signal_grants",
    }
    assert {name for name, services in allowed.items() if services == {"api"}} == {
        "start_runs", "enqueue", "report_result", "stop", "stop_runs", "put_boxes", "forget", "redeliver_callbacks",
    }  # fmt: skip
    private = await kernel.connection.fetch(
        "select p.proname, p.provolatile from pg_proc p where p.pronamespace = 'heliograph'::regnamespace and p.proname ~ '^_'"
        "   and (has_function_privilege('public', p.oid, 'execute') or has_function_privilege('heliograph_worker', p.oid, 'execute')"
        "        or has_function_privilege('heliograph_api', p.oid, 'execute') or has_function_privilege('heliograph_reader', p.oid, 'execute'))"
    )
    # the views put ids together with one of these, and read stored values with the others
    assert sorted(tuple(row) for row in private) == [
        ("_as_time", b"s"),
        ("_as_whole", b"i"),
        ("_deliverable_id", b"i"),
        ("_full_id", b"i"),
        ("_result_id", b"i"),
        ("_signal_id", b"i"),
        ("_time_of", b"s"),
    ]


@pytest.mark.proves("S2")
async def test_login_without_a_service_has_no_access(kernel: Kernel, shared_url: str) -> None:
    async with login(shared_url, services=()) as url, connected(url) as nobody:
        for statement in (
            "select heliograph.doctor('p', false)",
            "select * from heliograph.run_overview",
            "select * from heliograph.runs",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError, match="schema heliograph"):
                await nobody.fetch(statement)


@pytest.mark.proves("S2", "S1")
async def test_objects_in_the_search_path_of_a_caller_are_not_used(kernel: Kernel, shared_url: str) -> None:
    """A schema of the caller's that comes first, and a temporary one: tables, types, functions and operators of our names."""
    name = f"hostile_{kernel.project.replace('-', '_')}"
    async with login(shared_url, services=("worker", "api", "reader")) as url:
        user = name_of(url)
        await kernel.connection.execute(f"create schema {name} authorization {user}")
        try:
            async with connected(url) as service:
                # the driver looks up the types of columns in the catalog once: here, before its own queries are shadowed
                await service.fetchrow(
                    "select '{}'::text[], '{}'::int8[], '{}'::float8[], '{}'::boolean[], '{}'::jsonb[]"
                )
                await service.execute(shadows(name))
                hostile = Spelled(service, kernel.project, datetime.now(UTC))
                claimed = await suspended(hostile, command("c1"))
                assert (await hostile._one("report", {"turn_id": "turn_a", "call_id": "c1", "token": TOKEN, "status": "success",
                                                       "result": 1}))["outcome"] == "applied"  # fmt: skip
                (again,) = await hostile.claim()
                assert again["epoch"] > claimed["epoch"]
                assert (await hostile.finish(again, ends="success"))["outcome"] == "ok"
                assert len(await kernel.names("run_a")) > 3
                assert await service.fetchval(f"select count(*) from {name}.called") == 0
        finally:
            await kernel.connection.execute(f"drop schema {name} cascade")


class Spelled(Kernel):
    """Calls with qualified names only, so the search_path of the session does not affect them."""

    TYPES: ClassVar = {"integer": "int4", "bigint": "int8", "boolean": "bool"}

    async def call(self, function: str, *args: Any, project: str | None = None) -> Any:
        definition = KERNEL[function]
        given = [*definition.values([project or self.project, *args], encoded), *[self.now] * definition.takes_now]
        statement = definition.statement(f"${len(given)}::timestamptz")
        spelled = re.sub(r"::(\w+)", lambda cast: f"::pg_catalog.{self.TYPES.get(cast[1], cast[1])}", statement)
        return answer_of(definition, await self.connection.fetch(spelled, *given))


def shadows(schema: str) -> str:
    tables = ["runs", "agent_state_head", "agent_turns", "signals", "project_limits", "project_grants"]
    called = f"insert into {schema}.called values (true); return null;"
    return "\n".join([
        f"set search_path to {schema}, pg_temp, pg_catalog; create table {schema}.called (yes boolean);",
        *(f"create table {schema}.{table} (project_id text); create temp table {table} (project_id text);" for table in tables),
        # a type of the caller would run its input function as the owner
        *(f"create domain pg_temp.{kind} as pg_catalog.{kind} check (false);" for kind in ("text", "jsonb", "timestamptz", "float8")),
        *(f"create function {schema}.{signature} returns pg_catalog.{kind} language plpgsql as $$ begin {called} end $$;"
          for signature, kind in [("jsonb_build_object(pg_catalog.text, pg_catalog.text)", "jsonb"),
                                  ("_enter(pg_catalog.text)", "text"), ("set_config(pg_catalog.text, pg_catalog.text, boolean)", "text"),
                                  ("current_setting(pg_catalog.text, boolean)", "text"), ("octet_length(pg_catalog.text)", "int4")]),
        f"create function {schema}.same(pg_catalog.text, pg_catalog.text) returns boolean language plpgsql as $$ begin {called} end $$;",
        f"create operator {schema}.= (leftarg = pg_catalog.text, rightarg = pg_catalog.text, function = {schema}.same);",
    ])  # fmt: skip


@pytest.mark.proves("S18")
async def test_outside_requests_record_their_login(kernel: Kernel) -> None:
    await suspended(kernel, command("c1"))
    await kernel._one(
        "report",
        {"turn_id": "turn_a", "call_id": "c1", "token": TOKEN, "status": "success", "result": 1, "actor": "ada"},
    )
    await kernel.enqueue("run_a", "critic", "turn_b", actor="bob")
    await kernel.stop("turn_b", actor="eve")
    actors = await kernel.rows("inbox_overview", "inbox_id, message_type, actor", "actor is not null")
    assert [tuple(row)[1:] for row in actors] == [("tool_result", "ada"), ("turn", "bob"), ("stop", "eve")]


# ── Views ─────────────────────────────────────────────────────────────────────────────────────


async def seen(url: str, named: str | None, views: list[str]) -> set[tuple[str, str]]:
    """(view, project) of all rows that a login sees, where its session has named a project or none."""
    async with connected(url) as reader:
        if named is not None:
            await reader.execute("select set_config('heliograph.project', $1, false)", named)
        return {
            (view, row[0])
            for view in views
            for row in await reader.fetch(f"select distinct project_id from heliograph.{view}")
        }


@pytest.mark.more
@pytest.mark.proves("S1", "S2")
async def test_view_returns_permitted_and_selected_projects(kernel: Kernel, beside: Connect, shared_url: str) -> None:
    await fill(kernel)
    other = await beside()
    other.project += " too"
    await fill(other)
    ours, theirs = kernel.project, other.project
    views = list(await names(kernel.connection, "v"))
    all_of = {project: {(view, project) for view in views} for project in (ours, theirs)}

    async with login(shared_url, services=("reader",)) as free:
        assert await seen(free, ours, views) == all_of[ours]
        assert await seen(free, theirs, views) == all_of[theirs]
        assert await seen(free, None, views) == await seen(free, "", views) == set()
    async with login(shared_url, ours, services=("reader",)) as bound:
        assert (
            await seen(bound, None, views)
            == await seen(bound, "", views)
            == await seen(bound, ours, views)
            == all_of[ours]
        )
        assert await seen(bound, theirs, views) == set()
    async with login(shared_url, ours, theirs, services=("api",)) as twice:
        assert await seen(twice, None, views) == all_of[ours] | all_of[theirs]
        assert await seen(twice, theirs, views) == all_of[theirs]
    assert await seen(shared_url, None, views) >= all_of[ours] | all_of[theirs]  # an operator
    assert await seen(shared_url, ours, views) == all_of[ours]


@pytest.mark.proves("S1")
async def test_bound_login_works_only_in_its_project(kernel: Kernel, beside: Connect, shared_url: str) -> None:
    await fill(kernel)
    before = await kernel.everything()
    mine = f"{kernel.project} mine"
    async with login(shared_url, mine) as url, connected(url) as connection:
        bound = Kernel(connection, mine, datetime.now(UTC))
        assert (await bound.running())["turn_id"] == "turn_a"
        await connection.execute("select set_config('heliograph.project', $1, false)", kernel.project)
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match=f"not_found: no project {kernel.project}"):
            await bound.call("claim", [{"target": "newsroom"}], "thief", 10, 30.0, project=kernel.project)
        async with connection.transaction():  # nor in a transaction that is in a project of its own already
            assert await bound.call("liveness") == []
            assert (
                await connection.fetch("select * from heliograph.run_overview where project_id = $1", kernel.project)
                == []
            )
            await connection.execute("select set_config('heliograph.project', $1, true)", kernel.project)
            assert await connection.fetch("select * from heliograph.run_overview") == []
            assert len(await bound.call("read_box", "box_turn_a", 0, 10)) == 0
    assert await kernel.everything() == before


# ── Grants ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.proves("S2", "S18")
async def test_grant_is_listed_with_its_author_and_revoked(kernel: Kernel, shared_url: str) -> None:
    one, two = f"{kernel.project} one", f"{kernel.project} two"
    async with login(shared_url, one, services=("worker",)) as url:
        name = name_of(url)
        operator = kernel.connection

        async def listed() -> Any:
            return [(each.services, each.projects) for each in await read_logins(operator) if each.name == name]

        assert await listed() == [(("worker",), (one,))]
        assert (await grant(operator, name, ["api", "worker"], [two, two])).projects == (one, two)
        by = await operator.fetch(
            "select distinct granted_by = session_user from heliograph.project_grants where role_name = $1", name
        )
        assert [row[0] for row in by] == [True]
        await revoke(operator, name, [one])
        assert await listed() == [(("worker", "api"), (two,))]
        with pytest.raises(NotFound, match="not bound to project"):
            await revoke(operator, name, [one])
        assert await operator.fetchval("select heliograph.revoke_project($1, $2)", two, name) == "last"
        await revoke(operator, name, [two])  # the last one: it would be free now
        assert await listed() == []
        await grant(operator, name, ["reader"], [one, two])
        await revoke(operator, name, None)
        assert await listed() == []


async def test_grant_to_an_unknown_login_or_an_operator_is_rejected(kernel: Kernel) -> None:
    with pytest.raises(NotFound, match="there is no role") as unknown:
        await grant(kernel.connection, "nobody; drop schema heliograph", ["worker"], [kernel.project])
    assert unknown.value.code == "unknown_role"
    operator = await kernel.connection.fetchval("select current_user::text")
    with pytest.raises(Rejected, match="an operator"):
        await grant(kernel.connection, operator, ["worker"], [kernel.project])
    with pytest.raises(asyncpg.UndefinedObjectError, match="there is no role"):
        await kernel.connection.fetchval("select heliograph.grant_project($1, 'nobody', now())", kernel.project)
    assert (
        await kernel.connection.fetchval(
            "select count(*) from heliograph.project_grants where project_id = $1", kernel.project
        )
        == 0
    )


@pytest.mark.proves("S2", "S3")
async def test_unusual_login_name_works(kernel: Kernel, shared_url: str) -> None:
    odd_name = 'a "role"; drop schema heliograph; --%s $1'
    quoted = '"' + odd_name.replace('"', '""') + '"'
    await kernel.connection.execute(f"create role {quoted} login")
    try:
        granted = await grant(kernel.connection, odd_name, SERVICES, [kernel.project])
        assert (granted.services, granted.projects) == (SERVICES, (kernel.project,))
        assert (await revoke(kernel.connection, odd_name, None)).services == ()
    finally:
        await kernel.connection.execute(f"drop owned by {quoted}; drop role {quoted}")


async def test_security_check_finds_each_opening(kernel: Kernel, beside: Connect) -> None:
    assert await find_openings(kernel.connection) == []
    other = (await beside()).connection
    undone = other.transaction()
    await undone.start()
    await other.execute("""
        alter table heliograph.runs no force row level security;
        grant update on heliograph.cards to heliograph_worker;
        grant execute on function heliograph._signal_id to public;
        alter function heliograph.claim set search_path = public;
    """)
    found = await find_openings(other)
    await undone.rollback()
    assert [text.partition("(")[0].replace("heliograph.", "") for text in found] == [
        "claim", "every login may execute _signal_id", "heliograph_worker may write cards", "row security is not forced on runs",
    ]  # fmt: skip
