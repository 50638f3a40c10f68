"""Agents with hooks: each hook runs once, its end is recorded once, and its results reach the later hooks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from heliograph import Heliograph
from heliograph.agents import Agent
from heliograph.phases import GoalAchieved, ModelStep, PhaseContext, Plan, ToolStep
from tests.runtime.hooks_kit import ORDER, PHASES, Hooked, of_phases
from tests.runtime.kit import START, Rig, lost, one
from tests.runtime.loop_kit import payloads


async def test_hooks_run_in_order_and_pass_values_in_working_memory(rig: Rig) -> None:
    app, ran = Heliograph("hooked"), list[str]()

    @app.agent(activate_on=START, updates="out", emits=["reviewed"])
    class Reviewer(Agent):
        async def init(self, ctx: PhaseContext) -> None:
            ran.append(ctx.phase)
            ctx.working_memory["words"] = ["a"]

        def plan(self, ctx: PhaseContext) -> Plan:
            ran.append(ctx.phase)
            return Plan([ToolStep("search", {"query": "x"}), ModelStep("write")])

        async def act(self, ctx: PhaseContext) -> str:
            ran.append(ctx.phase)
            assert ctx.plan is not None
            assert ctx.plan.steps[1] == ModelStep("write")
            ctx.emit("reviewed", len(ctx.plan.steps))
            return "-".join(ctx.working_memory["words"])

        async def reflect(self, ctx: PhaseContext) -> GoalAchieved:
            ran.append(ctx.phase)
            assert ctx.output == "a"
            return GoalAchieved(confidence=0.9)

        async def terminate(self, ctx: PhaseContext) -> None:
            ran.append(f"{ctx.phase} {ctx.outcome} {ctx.output}")

    result = await rig.run(app)
    assert result.state == {"out": "a"}
    assert ran == ["init", "plan", "act", "reflect", "terminate success a"]
    assert of_phases(result.signals) == PHASES
    plan = one(result.signals, "plan_ready")
    assert (plan["steps"], plan["tools_required"]) == (2, ["search"])
    assert plan["plan"]["steps"][0] == {"kind": "tool_call", "tool": "search", "arguments": {"query": "x"}}
    assert one(result.signals, "reflection_complete") == {"decision": "goal_achieved", "confidence": 0.9}
    assert one(result.signals, "reviewed") == 2


@pytest.mark.proves("LC-01", "LC-15", "LC-22", "LC-25", "LC-32", "LC-35", "LC-44")
async def test_signals_of_the_phases_have_the_plan_the_actions_and_the_decision(rig: Rig) -> None:
    async def act(ctx: PhaseContext) -> str:
        ctx.working_memory["action_results"] = [{"success": True, "output": 1}, {"success": False, "output": 2}]
        return "both"

    hooked = Hooked(act=act)
    result = await rig.run(hooked.app(version="3"))
    assert hooked.ran == ORDER
    assert of_phases(result.signals) == PHASES
    steps = [{"kind": "model", "prompt": "work"}]
    assert one(result.signals, "ready")["version"] == "3"
    assert one(result.signals, "plan_ready") == {
        "steps": 1, "tools_required": [], "plan": {"steps": steps, "summary": ""},
    }  # fmt: skip
    assert one(result.signals, "action_complete") == {
        "steps_executed": 2, "success": False,
        "actions": [{"success": True, "output": 1}, {"success": False, "output": 2}],
    }  # fmt: skip
    assert one(result.signals, "reflection_complete") == {"decision": "goal_achieved", "confidence": 0.5}
    assert one(result.signals, "terminated") == {"status": "success", "outputs": ["both"]}
    cards = {card.content["tool"]: card.content["output"]["memory"]
             for card in await rig.runtime.reader.cards((await rig.turn_of("worker")).turn_id)
             if card.kind == "tool.result" and card.content["tool"] != "remember"}  # fmt: skip
    assert cards["plan"]["current_plan"]["steps"] == steps
    assert [each["output"] for each in cards["act"]["action_results"]] == [1, 2]


@pytest.mark.proves("LC-22", "LC-32", "LC-52")
@pytest.mark.parametrize("phase", ORDER)
async def test_worker_lost_in_a_phase_repeats_that_hook_alone(rig: Rig, phase: str) -> None:
    begun, effects = asyncio.Event(), list[str]()

    async def lose(ctx: PhaseContext) -> None:
        await ctx.step("effect", effects.append, phase)
        if ctx.attempt == 1:
            begun.set()
            await asyncio.Event().wait()

    hooked = Hooked(**{phase: lose})
    run_id = await lost(rig, hooked.app(), begun)
    async with rig.serving(hooked.app()):
        signals = await rig.ended(run_id)
    assert sorted(hooked.ran) == sorted([*ORDER, phase])
    assert effects == [phase]
    assert of_phases(signals) == PHASES
    assert one(signals, "workflow:end")["state"] == {"out": "done"}


@pytest.mark.proves("LC-02", "LC-66")
@pytest.mark.parametrize("phase", ORDER)
async def test_hook_waits_in_its_phase_and_earlier_hooks_do_not_run_again(rig: Rig, phase: str) -> None:
    async def wait(ctx: PhaseContext) -> None:
        ctx.working_memory["answer"] = await ctx.call("ask", call_id="mine")
        await ctx.delegate("clerk")

    hooked = Hooked(**{phase: wait})
    app = hooked.app()
    app.agent(name="clerk", on_request=True)(lambda _ctx: None)
    run_id = await rig.start(app)
    async with rig.serving(app):
        (command,) = await rig.taken("ask")
        turn = await rig.turn_of("worker", "suspended")
        assert turn.phase == phase
        await command.report(result="yes")
        signals = await rig.ended(run_id)
    once = phase if phase in ("init", "terminate") else f"{phase}-1"
    assert (command.call_id, one(signals, "delegation")["id"]) == (f"{once}-mine", f"{once}-c2")
    assert hooked.ran == [each for each in ORDER for _ in range(3 if each == phase else 1)]
    assert of_phases([signal for signal in signals if signal.agent == "worker"]) == PHASES


async def test_class_with_act_alone_has_the_context_of_a_hook_and_the_commits_of_a_function(rig: Rig) -> None:
    app, seen = Heliograph("alone"), list[Any]()

    @app.agent(activate_on=START, updates="out")
    class Alone(Agent):
        async def act(self, ctx: PhaseContext) -> str:
            ctx.working_memory["seen"] = 1
            seen.append((ctx.phase, ctx.iteration, ctx.max_iterations, ctx.plan, ctx.outcome, ctx.working_memory))
            return "done"

    assert (await rig.run(app)).state == {"out": "done"}
    assert seen == [("act", 0, 10, None, None, {"seen": 1})]
    cards = await rig.runtime.reader.cards((await rig.turn_of("Alone")).turn_id)
    assert [card.kind for card in cards if card.kind == "tool.result"] == []  # no phase is recorded by itself


@pytest.mark.more
async def test_signals_of_all_hooks_are_emitted_once_at_the_end(rig: Rig) -> None:
    async def emit(ctx: PhaseContext) -> None:
        ctx.emit("worked", ctx.phase)
        await ctx.pause(0.01)

    hooked = Hooked(**dict.fromkeys(("plan", "act", "terminate"), emit))
    signals = (await rig.run(hooked.app(emits=["worked"]))).signals
    assert payloads(signals, "worked") == ["plan", "act", "terminate"]


@pytest.mark.parametrize(
    ("phases", "writes"),
    [
        ([], ["finish"]),
        (["plan"], ["record_call"] * 2 + ["finish"]),
        (
            ORDER,
            [*["record_call"] * 3, "begin_call", *["record_call"] * 2, "finish"],
        ),  # reflect also stores its decision
    ],
    ids=["function", "one hook", "five hooks"],
)
async def test_each_hook_costs_one_commit_and_a_function_none_beyond_its_end(
    rig: Rig, phases: list[str], writes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, call = list[str](), rig.runtime.world.call

    async def counted(function: str, *args: Any) -> Any:
        if function in ("append", "begin_call", "record_call", "suspend", "defer", "finish"):
            made.append(function)
        return await call(function, *args)

    monkeypatch.setattr(rig.runtime.world, "call", counted)
    await rig.run(Hooked(phases).app())
    assert made == writes
