"""Agents with hooks whose values are not what the types of a hook promise."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from heliograph.phases import DelegationStep, ModelStep, PhaseContext, Plan, ToolStep
from tests.runtime.hooks_kit import ORDER, Hooked
from tests.runtime.kit import Rig, lost, one


@pytest.mark.parametrize(
    "plan",
    [Plan([ToolStep(5)]), Plan([ToolStep("search", "x")]), Plan([DelegationStep(None)]), Plan([ModelStep(None)]), Plan([], 7)],  # type: ignore[arg-type]
    ids=["tool", "arguments", "agent", "prompt", "summary"],
)  # fmt: skip
async def test_plan_with_a_field_of_another_type_fails_the_turn_in_its_phase(rig: Rig, plan: Any) -> None:
    async def invalid(_ctx: PhaseContext) -> Plan:
        return plan  # type: ignore[no-any-return]

    hooked = Hooked(plan=invalid)
    error = one((await rig.run(hooked.app())).signals, "agent:failed")["error"]
    assert (error["code"], error["recoverable"]) == ("PLAN_FAILED", False)
    assert "must return a Plan" in error["message"]
    assert hooked.ran == ["init", "plan", "terminate"]


async def test_working_memory_that_changes_between_equal_values_survives_a_lost_worker(rig: Rig) -> None:
    begun, seen = asyncio.Event(), list[Any]()

    async def init(ctx: PhaseContext) -> None:
        ctx.working_memory["found"] = 0

    async def plan(ctx: PhaseContext) -> None:
        ctx.working_memory["found"] = False

    async def act(ctx: PhaseContext) -> None:
        seen.append(ctx.working_memory["found"])
        if ctx.attempt == 1:
            begun.set()
            await asyncio.Event().wait()

    app = Hooked(init=init, plan=plan, act=act).app()
    run_id = await lost(rig, app, begun)
    async with rig.serving(app):
        await rig.ended(run_id)
    assert [type(each) for each in seen] == [bool, bool]


async def ask(ctx: PhaseContext) -> None:
    await ctx.call("ask")


@pytest.mark.parametrize(
    ("before", "after"),
    [(Hooked(terminate=ask), [*ORDER[:3]]), (Hooked(terminate=ask), [*ORDER[:3], "terminate"])],
    ids=["reflect and terminate removed", "reflect removed"],
)  # fmt: skip
async def test_turn_of_an_agent_that_lost_a_finished_hook_fails_and_its_worker_continues(
    rig: Rig, before: Hooked, after: list[str]
) -> None:
    app = before.app()
    run_id = await rig.start(app)
    async with rig.serving(app):
        (command,) = await rig.taken("ask")
        await rig.turn_of("worker", "suspended")
    await command.report(result="yes")
    newer = Hooked(after).app()
    other = await rig.start(newer)
    async with rig.serving(newer):
        error = one(await rig.ended(run_id), "agent:failed")["error"]
        assert one(await rig.ended(other), "workflow:end")["outcome"] == "success"
    assert error["code"] == "NOT_DETERMINISTIC"
    assert "does not follow from the hooks" in error["message"]


async def test_hook_reads_objects_in_one_key_order_before_and_after_a_suspension(rig: Rig) -> None:
    seen = list[list[str]]()

    async def init(ctx: PhaseContext) -> None:
        ctx.working_memory["found"] = {"zebra": 1, "b": 2, "aa": {"y": 1, "x": 2}}

    async def act(ctx: PhaseContext) -> None:
        found = ctx.working_memory["found"]
        seen.append([*found, *found["aa"]])
        await ctx.call("ask")

    app = Hooked(init=init, act=act).app()
    run_id = await rig.start(app)
    async with rig.serving(app):
        (command,) = await rig.taken("ask")
        await command.report(result="yes")
        await rig.ended(run_id)
    assert seen == [["aa", "b", "zebra", "x", "y"]] * 2
