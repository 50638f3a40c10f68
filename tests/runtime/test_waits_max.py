"""Turns that request more calls than waits_max allows, with and without a budget that rejects some."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from heliograph import Call, Context, Heliograph, Tool, external_tool, tool
from heliograph.models import ScriptedModel
from tests.runtime.kit import START, Rig, one
from tests.runtime.loop_kit import agent, call, payloads, results

SEARCH = external_tool("search", "Find.", {"type": "object"})
FEWER_CALLS = "make fewer calls in one turn, or raise the limit with helio db limits waits_max=NUMBER"
TEN_CALLS = [call("search", {"n": n}, f"x{n}") for n in range(10)]


async def allow(rig: Rig, most: int) -> None:
    await rig.runtime.database.call("set_limits", rig.runtime.settings.project, {"waits_max": most})


async def used(rig: Rig) -> list[tuple[int, int]]:
    query = "select used, reserved from heliograph.budget_overview where project_id = $1"
    return [(row["used"], row["reserved"]) for row in await rig.fetch(query, rig.runtime.settings.project)]


def exhausted(signals: Any) -> str:
    error = one(signals, "agent:failed")["error"]
    assert (error["code"], error["recoverable"]) == ("RESOURCE_EXHAUSTED", False)
    return str(error["message"])


@pytest.mark.proves("S12")
@pytest.mark.parametrize("budget", [None, {"tool_calls": 2}], ids=["no budget", "a budget for two"])
async def test_step_with_too_many_remote_calls_makes_none_and_uses_no_budget(rig: Rig, budget: Any) -> None:
    await allow(rig, 10)  # and the answer of the model is the eleventh
    model = ScriptedModel([TEN_CALLS, "never heard"])
    result = await rig.run(agent(model, [SEARCH], budget=budget))
    assert (
        exhausted(result.signals)
        == "the turn may not wait: the turn would have 11 calls; at most 10 are allowed: " + FEWER_CALLS
    )
    assert payloads(result.signals, "tool:call") == []
    assert await rig.client.take_commands(["search"], 10) == []
    assert await used(rig) == ([] if budget is None else [(0, 0)])


@pytest.mark.proves("S12")
async def test_calls_rejected_by_a_budget_count_toward_the_limit_and_the_others_run(rig: Rig) -> None:
    await allow(rig, 12)  # ten calls, and two answers of the model
    model = ScriptedModel([TEN_CALLS, "enough"])
    app = agent(model, [SEARCH], budget={"tool_calls": 2})
    async with rig.serving(app):
        run_id = await rig.start(app)
        for command in await rig.taken("search", count=2):
            await command.report(result=command.arguments["n"])
        assert one(await rig.ended(run_id), "workflow:end")["state"]["out"] == "enough"
    messages = results(model)
    assert messages[:2] == [0, 1]
    assert all(kind == "error" and "BUDGET_EXCEEDED" in message for kind, message in messages[2:])
    assert (len(messages), await used(rig)) == (10, [(2, 0)])


async def test_turn_without_room_for_another_model_call_ends_with_the_reason(rig: Rig) -> None:
    await allow(rig, 11)
    model = ScriptedModel([TEN_CALLS, "never asked"])
    app = agent(model, [SEARCH], budget={"tool_calls": 2})
    async with rig.serving(app):
        run_id = await rig.start(app)
        for command in await rig.taken("search", count=2):
            await command.report(result=1)
        reason = exhausted(await rig.ended(run_id))
    assert reason == "step model did not start: the turn would have 12 calls; at most 11 are allowed: " + FEWER_CALLS
    assert (len(model.requests), await used(rig)) == (1, [(2, 0)])


async def test_limit_applies_to_the_calls_of_a_function(rig: Rig) -> None:
    app = Heliograph("calls")

    @app.agent(activate_on=START, updates="out", budget={"tool_calls": 1})
    async def worker(ctx: Context) -> list[str]:
        return [result.status for result in await ctx.calls([Call("search", {"n": n}) for n in range(3)])]

    await allow(rig, 2)
    assert "would have 3 calls" in exhausted((await rig.run(app)).signals)
    await allow(rig, 3)
    async with rig.serving(app):
        run_id = await rig.start(app)
        [command] = await rig.taken("search")
        await command.report(result=1)
        assert one(await rig.ended(run_id), "workflow:end")["state"]["out"] == ["success", "failed", "failed"]


@pytest.mark.proves("K14")
async def test_started_calls_of_a_step_with_too_many_local_calls_run_to_their_end(rig: Rig) -> None:
    await allow(rig, 4)
    begun, ended = list[int](), list[int]()

    def slow() -> Tool:
        @tool(effect="once")
        async def buy(n: int) -> int:
            """Buy."""
            begun.append(n)
            await asyncio.sleep(0.2)  # the others are rejected by then
            ended.append(n)
            return n

        return buy

    model = ScriptedModel([[call("buy", {"n": n}, f"x{n}") for n in range(10)], "never heard"])
    result = await rig.run(agent(model, [slow()]))
    assert "at most 4 are allowed: make fewer calls" in exhausted(result.signals)
    assert (len(begun), sorted(ended)) == (3, sorted(begun))
    turn = await rig.turn_of("worker")
    assert [wait.status for wait in await rig.runtime.reader.waits(turn.turn_id)] == ["success"] * 4
