"""The rounds of an agent with hooks: another one follows until the goal is achieved or the limit is reached."""

from __future__ import annotations

from typing import Any

import pytest

from heliograph import Heliograph
from heliograph.agents import Agent
from heliograph.errors import InvalidInput
from heliograph.phases import GoalAchieved, IterationNeeded, Lifecycle, PhaseContext, Plan
from tests.runtime.hooks_kit import Hooked, of_phases
from tests.runtime.kit import START, Rig, one
from tests.runtime.loop_kit import payloads

pytestmark = pytest.mark.more  # each test runs all phases several times


def reflecting(*decisions: Any) -> Hooked:
    """An agent whose reflect hook decides these one after the other, the last one again and again; its output counts the rounds."""

    async def act(ctx: PhaseContext) -> str:
        return f"draft {ctx.iteration + 1}"

    async def reflect(ctx: PhaseContext) -> Any:
        return decisions[min(ctx.iteration, len(decisions) - 1)]

    return Hooked(act=act, reflect=reflect)


@pytest.mark.proves("LC-63", "LC-45", "LC-72", "G-01")
async def test_iteration_needed_begins_another_round_at_plan(rig: Rig) -> None:
    hooked = reflecting(IterationNeeded("no sources"), GoalAchieved(0.75, learnings=["cite"]))
    result = await rig.run(hooked.app())
    assert hooked.ran == ["init", "plan", "act", "reflect", "plan", "act", "reflect", "terminate"]
    assert of_phases(result.signals) == [
        "ready", "plan_ready", "action_complete", "reflection_complete", "plan_ready", "action_complete", "reflection_complete",
        "terminated",
    ]  # fmt: skip
    assert payloads(result.signals, "reflection_complete") == [
        {"decision": "iteration_needed", "reason": "no sources", "resume_at": "plan"},
        {"decision": "goal_achieved", "confidence": 0.75, "learnings": ["cite"]},
    ]
    assert result.state == {"out": "draft 2"}


@pytest.mark.proves("G-01", "LC-63")
async def test_iteration_that_resumes_at_act_keeps_its_plan(rig: Rig) -> None:
    hooked = reflecting(IterationNeeded("once more", resume_at="act"), GoalAchieved())
    result = await rig.run(hooked.app())
    assert hooked.ran == ["init", "plan", "act", "reflect", "act", "reflect", "terminate"]
    assert len(payloads(result.signals, "plan_ready")) == 1


async def test_agent_without_a_plan_hook_iterates_with_an_empty_plan_phase(rig: Rig) -> None:
    hooked = reflecting(IterationNeeded("once more"), GoalAchieved())
    hooked.phases = ["act", "reflect"]
    result = await rig.run(hooked.app())
    assert hooked.ran == ["act", "reflect", "act", "reflect"]
    assert payloads(result.signals, "plan_ready") == [{"steps": 1, "tools_required": []}] * 2


@pytest.mark.proves("LC-70", "LC-73", "G-12")
@pytest.mark.parametrize("policy", ["fail", "deliver_best"])
async def test_goal_that_is_not_achieved_in_the_last_round_is_never_reported_as_achieved(rig: Rig, policy: Any) -> None:
    assert Lifecycle().max_iterations == 10
    hooked = reflecting(IterationNeeded("still no sources"))
    result = await rig.run(hooked.app(lifecycle=Lifecycle(max_iterations=2, on_max_iterations=policy)))
    assert hooked.ran.count("reflect") == 2
    assert hooked.ran[-1] == "terminate"
    assert {each["decision"] for each in payloads(result.signals, "reflection_complete")} == {"iteration_needed"}
    message = "the goal was not achieved after 2 iterations (max_iterations): still no sources"
    limit = {"code": "MAX_ITERATIONS", "message": message, "recoverable": False}
    error = one(result.signals, "error")
    assert (error["error_code"], error["message"]) == ("MAX_ITERATIONS", message)
    terminated, turn = one(result.signals, "terminated"), await rig.turn_of("worker")
    if policy == "fail":
        assert terminated == {"status": "incomplete", "outputs": []}
        assert one(result.signals, "agent:failed")["error"] == limit
        assert turn.outcome == "failed"
    else:
        assert terminated == {"status": "incomplete", "outputs": ["draft 2"], "limit": limit}
        assert turn.outcome == "partial"


@pytest.mark.proves("LC-73")
async def test_reflect_hook_reads_the_count_and_may_raise_on_the_last_round(rig: Rig) -> None:
    async def reflect(ctx: PhaseContext) -> IterationNeeded:
        rounds.append((ctx.iteration, ctx.max_iterations))
        if ctx.iteration >= ctx.max_iterations - 1:
            raise RuntimeError("no goal in sight")
        return IterationNeeded("more")

    rounds: list[tuple[int, int]] = []
    signals = (await rig.run(Hooked(reflect=reflect).app(lifecycle=Lifecycle(max_iterations=3)))).signals
    assert rounds == [(0, 3), (1, 3), (2, 3)]
    assert one(signals, "agent:failed")["error"]["code"] == "REFLECTION_ERROR"


@pytest.mark.parametrize("decision", ["goal_achieved", GoalAchieved(2), IterationNeeded("x", resume_at="init")])  # type: ignore[arg-type]
async def test_decision_of_another_form_is_rejected_with_the_code_of_the_phase(rig: Rig, decision: Any) -> None:
    signals = (await rig.run(reflecting(decision).app())).signals
    assert one(signals, "error")["error_code"] == "REFLECTION_ERROR"


# ── The controller of the specification, line by line ──


class LifecycleController:
    """The controller of the specification. `Scripted` has its phases."""

    def __init__(self, max_iterations: int = 10):
        self.max_iterations = max_iterations
        self.current_iteration = 0

    async def run(self, agent: Any, task: Any) -> list[str]:
        await self.init(agent)
        while self.current_iteration < self.max_iterations:
            await self.plan(agent, task)
            await self.act(agent, task)
            decision = await self.reflect(agent, task)
            if decision == "goal_achieved":
                break
            self.current_iteration += 1
        return await self.terminate(agent)

    async def init(self, agent: Any) -> None:
        await agent.init()

    async def plan(self, agent: Any, task: Any) -> None:
        await agent.plan(task)

    async def act(self, agent: Any, task: Any) -> None:
        await agent.act(task)

    async def reflect(self, agent: Any, task: Any) -> str:
        return str(await agent.reflect(task))

    async def terminate(self, agent: Any) -> list[str]:
        return list(await agent.terminate())


class Scripted:
    """An agent that reaches its goal in the round that is its task. `terminate` returns what the agent did."""

    def __init__(self) -> None:
        self.round, self.did = 0, list[str]()

    async def init(self) -> None:
        self.did.append("init")

    async def plan(self, _task: int) -> None:
        self.round += 1
        self.did.append("plan")

    async def act(self, _task: int) -> None:
        self.did.append("act")

    async def reflect(self, task: int) -> str:
        decision = "goal_achieved" if self.round == task else "iteration_needed"
        self.did.append(f"reflect {decision}")
        return decision

    async def terminate(self) -> list[str]:
        return [*self.did, "terminate"]


@pytest.mark.proves("LC-70", "LC-72", "LC-64")
@pytest.mark.parametrize("goal", [1, 3, 4, 99])
async def test_rounds_are_those_of_the_controller_of_the_specification(rig: Rig, goal: int) -> None:
    app, did = Heliograph("ported"), list[str]()

    @app.agent(activate_on=START, lifecycle=Lifecycle(max_iterations=4))
    class Ported(Agent):
        async def init(self, _ctx: PhaseContext) -> None:
            did.append("init")

        async def plan(self, _ctx: PhaseContext) -> Plan:
            did.append("plan")
            return Plan()

        async def act(self, _ctx: PhaseContext) -> None:
            did.append("act")

        async def reflect(self, ctx: PhaseContext) -> GoalAchieved | IterationNeeded:
            is_achieved = ctx.iteration + 1 == goal
            did.append(f"reflect {'goal_achieved' if is_achieved else 'iteration_needed'}")
            return GoalAchieved() if is_achieved else IterationNeeded("more")

        async def terminate(self, _ctx: PhaseContext) -> None:
            did.append("terminate")

    signals = (await rig.run(app)).signals
    assert did == await LifecycleController(4).run(Scripted(), goal)
    assert one(signals, "terminated")["status"] == ("success" if goal <= 4 else "incomplete")


# ── Limits ──


@pytest.mark.proves("G-10")
def test_phases_that_exceed_the_lifetime_of_the_turn_give_a_warning() -> None:
    [warning] = [each for each in Hooked().app().workflow.warnings if each.startswith("phases_exceed_lifetime")]
    assert "may take 3945 s together, and its turns live 3600 s (ttl_seconds)" in warning
    short = Hooked().app(lifecycle=Lifecycle(max_iterations=9)).workflow.warnings
    assert not [each for each in short if each.startswith("phases_exceed_lifetime")]
    # one round, because nothing asks for another one; 60 s for plan and 300 s for act do not fit
    [warning] = Hooked(["plan", "act"]).app(ttl_seconds=359).workflow.warnings
    assert "may take 360 s together, and its turns live 359 s (ttl_seconds)" in warning
    assert Hooked(["plan", "act"]).app(ttl_seconds=360).workflow.warnings == []


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"max_iterations": 0}, "max_iterations"),
        ({"plan_timeout_seconds": 0}, "plan_timeout_seconds"),
        ({"on_max_iterations": "win"}, "on_max_iterations"),
        ({"on_tool_error": "ignore"}, "on_tool_error"),
        ({"terminate_force_seconds": 10}, "terminate_force_seconds"),
        ({"error_retries": {"X": -1}}, "error_retries/X"),
        ({"error_retries": {1: 3}}, "error_retries"),
    ],
)
def test_limit_out_of_range_is_rejected_with_its_path(options: Any, path: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Hooked().app(lifecycle=Lifecycle(**options))
    assert caught.value.path == f"/agents/worker/lifecycle/{path}"


def test_error_policy_with_a_misspelt_code_gives_a_warning_and_one_of_a_tool_does_not() -> None:
    lifecycle = Lifecycle(error_retries={"network_eror": 3, "PRINTER_JAMMED": 1}, max_iterations=1)
    assert Hooked().app(lifecycle=lifecycle).workflow.warnings == [
        "unknown_error_code: error_retries of agent worker has the code network_eror, which the runtime does not use; did you mean "
        "NETWORK_ERROR?"]  # fmt: skip


@pytest.mark.parametrize("form", [3, "yes"])
@pytest.mark.parametrize("phase", ["plan", "reflect"])
def test_form_of_a_models_phase_that_is_no_type_is_rejected(phase: str, form: Any) -> None:
    with pytest.raises(InvalidInput, match=f"{phase} must be True, a type, a JSON Schema or a function") as caught:
        Heliograph("forms").prompt_agent("worker", "Work.", activate_on=START, **{phase: form})
    assert caught.value.path == f"/agents/worker/{phase}"


@pytest.mark.parametrize("form", [str, dict[str, int], {"type": "object", "properties": {"done": {"type": "boolean"}}}])
def test_decision_without_the_field_goal_achieved_is_rejected_before_a_model_is_asked(form: Any) -> None:
    with pytest.raises(InvalidInput, match="reflect has no field goal_achieved; add a boolean field with this name"):
        Heliograph("forms").prompt_agent("worker", "Work.", activate_on=START, reflect=form)


def test_lifetime_without_time_beside_the_terminate_hook_is_rejected() -> None:
    with pytest.raises(InvalidInput, match="must be above the 15 s of the terminate hook, not 15") as caught:
        Hooked().app(ttl_seconds=15)
    assert caught.value.path == "/agents/worker/ttl_seconds"
    Hooked().app(ttl_seconds=15, lifecycle=Lifecycle(terminate_timeout_seconds=5))
    Hooked(["plan", "act"]).app(ttl_seconds=1)


def test_class_that_cannot_be_created_without_arguments_is_rejected() -> None:
    class Connected(Agent):
        def __init__(self, url: str) -> None: ...

        def act(self, _ctx: PhaseContext) -> None: ...

    with pytest.raises(InvalidInput, match="creates the class without arguments, so open connections in the hook"):
        Heliograph("classes").agent(activate_on=START)(Connected)


def test_class_with_a_misspelt_hook_or_without_work_is_rejected() -> None:
    app = Heliograph("classes")

    class Misspelt(Agent):
        def act(self, _ctx: PhaseContext) -> None: ...
        def reflekt(self, _ctx: PhaseContext) -> None: ...

    class Idle(Agent):
        def init(self, _ctx: PhaseContext) -> None: ...

    with pytest.raises(InvalidInput, match=r"reflekt is not a hook; did you mean reflect\?"):
        app.agent(activate_on=START)(Misspelt)
    with pytest.raises(InvalidInput, match="agent Idle: act is missing"):
        app.agent(activate_on=START)(Idle)


def test_class_without_its_base_and_object_of_a_class_are_rejected_with_the_next_step() -> None:
    app = Heliograph("classes")

    class Baseless:
        def act(self, _ctx: PhaseContext) -> None: ...

    class Based(Agent):
        def act(self, _ctx: PhaseContext) -> None: ...

    with pytest.raises(InvalidInput, match=r"is the class Baseless; derive it from heliograph\.agents\.Agent"):
        app.agent(activate_on=START)(Baseless)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=r"register Based instead of Based\(\)"):
        app.agent(activate_on=START)(Based())  # type: ignore[call-overload]
