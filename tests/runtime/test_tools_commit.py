"""Transactional tools: their writes commit with their result, once, or not at all."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from heliograph import ToolContext, tool
from heliograph.errors import StoreUnavailable
from heliograph.ledger.transactions import OpenTransaction
from heliograph.models import ScriptedModel
from tests.runtime.kit import Rig, lost
from tests.runtime.loop_kit import agent, results
from tests.runtime.tools_kit import called


@pytest.mark.proves("K13", "K14")
async def test_transactional_tool_writes_once_with_its_result_although_its_worker_is_killed(rig: Rig) -> None:
    table = f"paid_{rig.runtime.settings.project.replace('-', '_')}"
    await rig.fetch(f"create table {table} (amount integer, key text)")
    begun, tries = asyncio.Event(), list[int]()

    @tool(effect="transactional")
    async def pay(amount: int, ctx: ToolContext) -> str:
        """Pay."""
        tries.append(1)
        await ctx.connection.execute(f"insert into {table} values ($1, $2)", amount, ctx.idempotency_key)
        begun.set()
        if len(tries) == 1:
            await asyncio.Event().wait()
        return "paid"

    script = ScriptedModel([called("pay", amount=5), "done"])
    app = agent(script, [pay])
    run_id = await lost(rig, app, begun)
    assert await rig.fetch(f"select * from {table}") == []
    async with rig.serving(app):
        await rig.ended(run_id)
    assert [row["amount"] for row in await rig.fetch(f"select amount from {table}")] == [5]
    assert results(script) == ["paid"]
    assert len(tries) == 2


@pytest.mark.proves("K13")
async def test_transactional_tool_rolls_back_when_it_fails_is_late_or_cannot_commit(rig: Rig) -> None:
    table = f"kept_{rig.runtime.settings.project.replace('-', '_')}"
    await rig.fetch(f"create table {table} (n integer unique deferrable initially deferred)")

    @tool(effect="transactional", timeout_seconds=0.5)
    async def keep(n: int, how: str, ctx: ToolContext) -> str:
        """Keep."""
        await ctx.connection.execute(f"insert into {table} values ($1)", n)
        if how == "raise":
            raise ValueError("no")
        if how == "late":
            await asyncio.Event().wait()
        if how == "swallow":
            try:
                await ctx.connection.execute("select 1 / 0")
            except Exception:
                return "nothing happened"
        if how == "commit":
            await ctx.connection.execute("rollback")
        return "x" * 2_000_000 if how == "large" else "kept"

    ways = ["fine", "raise", "late", "swallow", "commit", "large"]
    script = ScriptedModel(
        [*([called("keep", n=n, how=how)] for n, how in enumerate(ways)), called("keep", n=0, how="fine"), "done"]
    )
    await rig.run(agent(script, [keep]))
    assert [row["n"] for row in await rig.fetch(f"select n from {table}")] == [0]
    errors = [each[1] for each in results(script) if each[0] == "error"]
    assert results(script)[0] == "kept"
    for message, part in zip(errors, ["ValueError: no", "TOOL_TIMEOUT", "it was undone", "it was undone", "RESULT_TOO_LARGE",
                                    "it was undone"], strict=True):  # fmt: skip
        assert part in message


@pytest.mark.proves("K13")
async def test_transaction_with_a_broken_connection_is_repeated_unless_it_committed(rig: Rig) -> None:
    table = f"cut_{rig.runtime.settings.project.replace('-', '_')}"
    await rig.fetch(f"create table {table} (n integer)")
    tries: list[int] = []

    @tool(effect="transactional")
    async def keep(ctx: ToolContext) -> int:
        """Keep."""
        tries.append(1)
        await ctx.connection.execute(f"insert into {table} values (1)")
        if len(tries) == 1:
            ctx.connection.terminate()
        return len(tries)

    script = ScriptedModel([called("keep"), "done"])
    await rig.run(agent(script, [keep]))
    assert results(script) == [2]
    assert len(await rig.fetch(f"select * from {table}")) == 1


@pytest.mark.proves("K13")
async def test_commit_with_a_lost_reply_is_detected_and_not_repeated(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    table = f"lost_{rig.runtime.settings.project.replace('-', '_')}"
    await rig.fetch(f"create table {table} (n integer)")
    commit, tries = OpenTransaction.commit, list[int]()

    async def lose(self: OpenTransaction, function: str, *args: object) -> Any:
        await commit(self, function, *args)
        raise StoreUnavailable("the answer is lost")

    monkeypatch.setattr(OpenTransaction, "commit", lose)

    @tool(effect="transactional")
    async def keep(ctx: ToolContext) -> int:
        """Keep."""
        tries.append(1)
        await ctx.connection.execute(f"insert into {table} values (1)")
        return len(tries)

    script = ScriptedModel([called("keep"), called("keep"), "done"])
    await rig.run(agent(script, [keep]))
    assert results(script) == [1, 2]
    assert len(await rig.fetch(f"select * from {table}")) == len(tries) == 2
