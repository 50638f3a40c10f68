"""Transactional tools that end their own transaction or get no connection: the real outcome is reported."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from heliograph import ToolContext, tool
from heliograph.ledger import transactions
from heliograph.models import ScriptedModel
from tests.runtime.kit import Rig
from tests.runtime.loop_kit import agent, call, results

Body = Callable[[Any], Awaitable[Any]]
REMAINS = "it ended its transaction by itself, and its writes until then stay"


async def commits(connection: Any) -> None:
    await connection.execute("commit")


async def commits_and_begins(connection: Any) -> None:
    await connection.execute("commit")
    await connection.execute("begin")


async def commits_and_fails(connection: Any) -> None:
    await connection.execute("commit")
    raise ValueError("no")


async def commits_and_is_late(connection: Any) -> None:
    await connection.execute("commit")
    await asyncio.Event().wait()


async def commits_and_closes(connection: Any) -> None:
    await connection.execute("commit")
    await connection.close()


async def rolls_back_and_begins(connection: Any) -> None:
    await connection.execute("rollback")
    await connection.execute("begin")


async def becomes_another(connection: Any) -> None:
    await connection.execute("set role pg_read_all_data")


async def closes(connection: Any) -> None:
    await connection.close()


@pytest.mark.more
@pytest.mark.proves("K13")
@pytest.mark.parametrize(
    ("body", "rows", "runs", "message"),
    [
        (commits, 1, 1, REMAINS),
        (commits_and_begins, 1, 1, REMAINS),
        (commits_and_fails, 1, 1, REMAINS),
        (commits_and_is_late, 1, 1, REMAINS),
        (commits_and_closes, 1, 1, REMAINS),
        (rolls_back_and_begins, 0, 1, "it was undone: the function ended the transaction of its connection"),
        (becomes_another, 0, 1, "it was undone"),
        (closes, 0, 3, "it was undone 3 times, since its transaction could not be committed"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_transaction_ended_by_its_function_is_reported_with_its_real_outcome(
    rig: Rig, body: Body, rows: int, runs: int, message: str
) -> None:
    table = f"told_{rig.runtime.settings.project.replace('-', '_')}"
    await rig.fetch(f"create table {table} (n integer)")
    made: list[int] = []

    @tool(effect="transactional", timeout_seconds=2)
    async def keep(ctx: ToolContext) -> str:
        made.append(1)
        await ctx.connection.execute(f"insert into {table} values (1)")
        await body(ctx.connection)
        return "kept"

    model = ScriptedModel([call("keep"), "done"])
    result = await rig.run(agent(model, [keep]))
    assert result.outcome == "success"
    [(how, text)] = results(model)
    assert how == "error"
    assert message in text
    assert len(await rig.fetch(f"select * from {table}")) == rows
    assert len(made) == runs


async def test_call_without_a_connection_in_time_fails_without_calling_its_function(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "_SIZE", 1)
    made: list[int] = []

    @tool(effect="transactional", timeout_seconds=0.3)
    async def short(ctx: ToolContext) -> None:
        made.append(1)

    model = ScriptedModel([call("short"), "done"])
    async with rig.runtime.world.transaction():  # the only one that there may be
        await rig.run(agent(model, [short]))
    assert results(model) == [
        ("error", "TOOL_TIMEOUT: no connection to the database was free within 0.3 s; nothing was done")
    ]
    assert made == []
