"""Agents with hooks: each hook runs once, its end is recorded once, and its results reach the later hooks."""

from __future__ import annotations

from typing import Any

from heliograph import (
    Agent,
    GoalAchieved,
    Heliograph,
    ModelStep,
    PhaseContext,
    Plan,
    ToolStep,
)
from tests.runtime.kit import START, Rig, names, one

PHASES = ["ready", "plan_ready", "action_complete", "reflection_complete", "terminated"]


def of_phases(signals: list[Any]) -> list[str]:
    return [name for name in names(signals) if name in (*PHASES, "error", "halt")]


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
