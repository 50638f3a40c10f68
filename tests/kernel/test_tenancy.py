"""Projects never meet: every public function that the installed schema has, tried with every id of another project.

The functions are read from the catalog, so the test covers new ones too.
"""

from __future__ import annotations

import json
import re
from typing import Any

import asyncpg
import pytest

from heliograph.ledger.kernel import KERNEL
from tests.kernel.filled import fill
from tests.kernel.foreign_calls import PARAMETERS, Function, Known, functions, known
from tests.kernel.kit import Connect, Kernel, new_project
from tests.kernel.waits import TOKEN
from tests.logins import connected, login

LATER_SECONDS = 10_000.0
# Sequences that all projects share: they reveal how much was written, and no content.
COUNTERS = ("outbox_id", "position", "inbox_id")
# Functions that belong to no project, with the reason: none so far.
OF_NO_PROJECT: dict[str, str] = {}
# Functions with the rights of their caller: they only call others, which enter the project.
OF_THEIR_CALLER = ("start_and_claim", "report_and_claim")


@pytest.mark.proves("S1")
async def test_every_public_function_is_of_one_project_and_enters_it_first(kernel: Kernel) -> None:
    for function in await functions(kernel.connection):
        if function.name in OF_NO_PROJECT:
            continue
        assert function.parameters[0] == ("p_project", "text"), function.name
        if function.name in OF_THEIR_CALLER:
            assert "heliograph._" not in function.source
            continue
        first = next(
            line.strip()
            for line in function.source.splitlines()
            if line.strip() not in ("", "declare", "#variable_conflict use_column")
        )
        assert first in (
            "v_project constant text := heliograph._enter(p_project);",
            "v_project constant text := heliograph._enter_at(p_project, p_now);",
        ), f"{function.name} does not enter its project first"


async def test_plans_of_every_public_function_are_pinned(kernel: Kernel) -> None:
    for function in await functions(kernel.connection):
        assert "plan_cache_mode=force_generic_plan" in function.settings, f"{function.name} is planned on each call"


async def test_isolation_test_has_an_argument_for_every_parameter(kernel: Kernel) -> None:
    names = {name for function in await functions(kernel.connection) for name, _ in function.parameters}
    columns = {f"p_{column.name}" for function in KERNEL.values() for column in function.columns}
    assert sorted(names - set(PARAMETERS) - columns) == []


async def answers(connection: asyncpg.Connection, project: str, ids: Known) -> dict[str, list[Any]]:
    """The answers of every public function to `project` for these ids; for an error, its code and its message."""
    replies: dict[str, list[Any]] = {}
    for function in await functions(connection):
        replies[function.name] = [
            without_counters(await answer(connection, function, arguments, project))
            for arguments in function.tries(project, ids)
        ]
    return replies


def rejection_parts(name: str, error: asyncpg.PostgresError, project: str) -> Any:
    assert error.sqlstate is not None
    assert error.sqlstate.startswith(("22", "23")), (name, error)
    return [error.sqlstate, str(error).replace(project, "PROJECT")]


async def answer(connection: asyncpg.Connection, function: Function, arguments: tuple[Any, ...], project: str) -> Any:
    try:
        rows = await connection.fetch(function.call(), *fitted(function, arguments))
    except asyncpg.PostgresError as error:
        return rejection_parts(function.name, error, project)
    if function.name == "bell_key":  # a hash of the project's name and a secret: another for each name, used or not
        assert all(re.fullmatch("[0-9a-f]{64}", row[0]) for row in rows)
        return [["KEY"]]
    return json.loads(json.dumps([row[0] for row in rows]).replace(project, "PROJECT"))


def fitted(function: Function, arguments: tuple[Any, ...]) -> list[Any]:
    """p_after is a position of a log, or the last one seen of a list of names."""
    return [
        str(given) if kind == "text" else given for given, (_, kind) in zip(arguments, function.parameters, strict=True)
    ]


def without_counters(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_counters(each) for key, each in value.items() if key not in COUNTERS}
    return [without_counters(each) for each in value] if isinstance(value, list) else value


@pytest.mark.proves("S1")
async def test_no_function_reveals_or_changes_anything_of_another_project(kernel: Kernel, beside: Connect) -> None:
    await fill(kernel)
    ids = await known(kernel, TOKEN, LATER_SECONDS)
    before = await kernel.everything()
    foreigner = (await beside()).connection
    rejection_parts = await answers(foreigner, f"{kernel.project} one", ids)
    assert await kernel.everything() == before
    answered = {name for name, replies in rejection_parts.items() if any(not is_error(each) for each in replies)}
    assert answered == set(rejection_parts)  # otherwise a function was only rejected, not tested

    # an empty database gives the same answers, so they do not reveal whether the other project exists
    await kernel.harm(*(f"delete from {table} where project_id = $1" for table in before))
    assert await answers(foreigner, f"{kernel.project} two", ids) == rejection_parts


def is_error(replies: Any) -> bool:
    return isinstance(replies, list) and len(replies) == 2 and isinstance(replies[0], str)


@pytest.mark.proves("S1")
async def test_bound_login_gets_the_same_rejection_for_a_foreign_and_a_missing_project(
    kernel: Kernel, shared_url: str
) -> None:
    await fill(kernel)
    ids = await known(kernel, TOKEN, LATER_SECONDS)
    before = await kernel.everything()
    nowhere = kernel.project.replace("project", "nothing")
    async with login(shared_url, "another", services=("worker", "api", "reader")) as url, connected(url) as bound:
        for function in await functions(bound):
            refused = [await rejection(bound, function, project, ids) for project in (kernel.project, nowhere)]
            assert refused[0] == refused[1], function.name
            assert refused[0] == ("42501", "not_found: no project PROJECT") or "permission denied" in refused[0][1]
    assert await kernel.everything() == before


async def rejection(connection: asyncpg.Connection, function: Function, project: str, ids: Known) -> tuple[str, str]:
    with pytest.raises(asyncpg.InsufficientPrivilegeError) as refused:
        await connection.fetch(function.call(), *fitted(function, next(function.tries(project, ids))))
    return str(refused.value.sqlstate), str(refused.value).replace(project, "PROJECT")


@pytest.mark.proves("S1")
async def test_row_security_binds_a_function_without_a_project_filter(kernel: Kernel, beside: Connect) -> None:
    await fill(kernel)
    before = await kernel.everything()
    other = await beside()
    other.project = new_project()
    async with other.connection.transaction():
        # a function as a careless hand would write it: it enters a project, and then reads and writes without naming it
        await other.connection.execute("""
            create function heliograph.careless(p_project text, p_table text) returns bigint language plpgsql as $$
            declare
                v_project constant text := heliograph._enter(p_project);
                v_count bigint;
            begin
                execute format('update heliograph.%I set project_id = project_id', p_table);
                get diagnostics v_count = row_count;
                execute format('delete from heliograph.%I', p_table);
                return v_count;
            end $$;
            alter function heliograph.careless owner to heliograph_owner;
            alter function heliograph.careless security definer;
            create function heliograph.smuggle(p_project text, p_to text) returns void language plpgsql as $$
            declare
                v_project constant text := heliograph._enter(p_project);
            begin
                insert into heliograph.boxes values (p_to, 'box_smuggled', 'context', null, null, null, null, now());
            end $$;
            alter function heliograph.smuggle owner to heliograph_owner;
            alter function heliograph.smuggle security definer;
        """)
        for table in before:
            assert await other.connection.fetchval("select heliograph.careless($1, $2)", other.project, table) == 0
        assert await other.connection.fetchval("select heliograph.careless($1, 'runs')", kernel.project) == len(
            before["runs"]
        )
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="violates row-level security policy"):
            await other.connection.execute("select heliograph.smuggle($1, $2)", other.project, kernel.project)


@pytest.mark.proves("S1")
async def test_every_table_with_a_project_has_row_security_that_binds_its_owner_too(kernel: Kernel) -> None:
    tables = await kernel.connection.fetch(
        "select c.relname as name, c.relrowsecurity and c.relforcerowsecurity as is_forced,"
        "       c.relowner::regrole::text as owner, array(select polname::text from pg_policy where polrelid = c.oid order by 1) as policies"
        "  from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attname = 'project_id'"
        " where c.relnamespace = 'heliograph'::regnamespace and c.relkind = 'r' order by 1"
    )
    assert len(tables) > 10
    assert {(row["is_forced"], row["owner"]) for row in tables} == {(True, "heliograph_owner")}
    policies = {row["name"]: row["policies"] for row in tables}
    assert policies.pop("project_grants") == ["own"]
    assert {name for name, found in policies.items() if found != ["project", "seen"]} == set()
    keys = await kernel.connection.fetch(
        "select i.indexrelid::regclass::text from pg_index i join pg_class c on c.oid = i.indrelid"
        " where c.relnamespace = 'heliograph'::regnamespace and i.indisunique and exists (select from pg_attribute a"
        "   where a.attrelid = c.oid and a.attname = 'project_id' and a.attnum <> i.indkey[0])"
    )
    assert keys == []


@pytest.mark.proves("S1", "S11")
@pytest.mark.parametrize("project", [None, "", "p" * 201, "ü" * 101], ids=["none", "empty", "long", "long in bytes"])
async def test_invalid_project_is_rejected_by_every_function(kernel: Kernel, project: str | None) -> None:
    await fill(kernel)
    ids = await known(kernel, TOKEN, LATER_SECONDS)
    for function in await functions(kernel.connection):
        arguments = fitted(function, (project, *next(function.tries("", ids))[1:]))
        arguments[0] = project  # str(None) is a name
        with pytest.raises(asyncpg.DataError, match="the name of a project must have 1 to 200 bytes"):
            await kernel.connection.fetch(function.call(), *arguments)
