"""Plans and decisions of models: a model plans and reflects, and each decision is stored in the memory."""

from __future__ import annotations

import json
from typing import Any

import pytest

from heliograph import Context, Heliograph
from heliograph.agents import Agent
from heliograph.models import ModelReply, ModelRequest, ScriptedModel, ToolCall, UserMessage
from heliograph.phases import GoalAchieved, IterationNeeded, Lifecycle, PhaseContext
from tests.reach.model_server import Answer, Provider
from tests.runtime.kit import START, Rig, one
from tests.runtime.loop_kit import payloads
from tests.runtime.plans_kit import CALLS, search

pytestmark = pytest.mark.more  # each test runs all phases several times


@pytest.fixture(autouse=True)
def no_calls() -> None:
    CALLS.clear()


def of_model(request: ModelRequest) -> str:
    """The phase that asks the model: of its last message."""
    last = request.prompt
    return "plan" if last.startswith("Make a plan") else "reflect" if last.startswith("Evaluate") else "step"


THREE: Any = {"steps": [
    {"kind": "tool_call", "tool": "search", "arguments": {"query": "a"}},
    {"kind": "delegation", "agent": "clerk", "task": "file it"},
    {"kind": "model", "prompt": "write the report"},
]}  # fmt: skip


def planning(model: Any, **options: Any) -> Heliograph:
    app = Heliograph("planning")
    app.prompt_agent("worker", "Report on {state.topic}.", model=model, activate_on=START, updates="out", tools=[search],
                     agents=["clerk"], plan=True, reflect=True, **options)  # fmt: skip
    app.agent(name="clerk", on_request=True)(lambda ctx: f"filed {ctx.task}")
    return app


@pytest.mark.proves("LC-21", "LC-41", "LC-40", "LC-22", "LC-31", "LC-44", "LC-45", "LC-63")
@pytest.mark.parametrize(
    "protocol", ["openai-chat:test", pytest.param("anthropic:claude-test", marks=pytest.mark.more)]
)
async def test_planning_agent_plans_executes_reflects_iterates_once_and_reaches_its_goal(
    rig: Rig, provider: Provider, protocol: str
) -> None:
    def final(value: Any) -> Answer:
        return Answer(calls=[("call_1", "final_result", json.dumps(value))])

    provider.answers[:] = [
        final(THREE), Answer(("a thin ", "report")),
        final({"goal_achieved": False, "reason": "no sources", "learnings": ["a report on tides names its sources"]}),
        final(THREE), Answer(("a full ", "report")),
        final({"goal_achieved": True, "confidence": 0.9}),
    ]  # fmt: skip
    result = await rig.run(planning(protocol), {"topic": "tides"})
    assert provider.rejected == []
    assert result.state.get("out") == "a full report", [
        s.payload for s in result.signals if s.name in ("error", "harness:error")
    ]
    assert CALLS == ["a", "a"]
    signals = [signal for signal in result.signals if signal.agent == "worker"]
    assert payloads(signals, "reflection_complete") == [
        {
            "decision": "iteration_needed",
            "reason": "no sources",
            "resume_at": "plan",
            "learnings": ["a report on tides names its sources"],
        },
        {"decision": "goal_achieved", "confidence": 0.9},
    ]
    second_plan = json.dumps(provider.requests[3])
    assert "An earlier attempt did not reach the goal: no sources" in second_plan
    assert "From your memory" in second_plan  # the learnings that the first round stored
    assert "a report on tides names its sources" in second_plan
    turn = await rig.turn_of("worker")
    [hit] = await rig.runtime.ledger.recall("sources", "worker", 5)
    assert hit["metadata"] == {
        "task_id": turn.turn_id,
        "outcome": "iteration_needed",
        "learnings": ["a report on tides names its sources"],
    }
    assert result.metrics["usage"] == {"inputTokens": 42, "outputTokens": 18}


@pytest.mark.proves("LC-21")
async def test_plan_retrieves_the_memories_that_share_a_word_with_the_prompt(rig: Rig) -> None:
    def reply(request: ModelRequest) -> Any:
        plans.append(str(request.messages))
        return ModelReply("", output={"steps": []})

    plans: list[str] = []
    app = Heliograph("recalls")

    @app.agent(activate_on=START)
    async def lead(ctx: Context) -> None:
        await ctx.delegate("worker", 'Write a long-form report on the "tides", or the moon -- but not a short one.')

    app.prompt_agent("worker", "{signal.payload}", model=ScriptedModel(reply), on_request=True, plan=True)
    await rig.runtime.ledger.remember([
        {"memory_id": "near", "agent": "worker", "text": "Tides need a table of sources."},
        {"memory_id": "far", "agent": "worker", "text": "Invoices go to the office."},
    ])  # fmt: skip
    await rig.run(app)
    assert "Tides need a table of sources." in plans[0]
    assert "Invoices" not in plans[0]


@pytest.mark.proves("LC-73", "G-12")
async def test_planning_agent_whose_goal_cannot_be_reached_ends_incomplete(rig: Rig) -> None:
    def reply(request: ModelRequest) -> Any:
        match of_model(request):
            case "plan":
                return ModelReply("", output=THREE)
            case "reflect":
                return ModelReply("", output={"goal_achieved": False, "reason": "no sources"})
        return "a report"

    app = planning(ScriptedModel(reply), lifecycle=Lifecycle(max_iterations=2, on_max_iterations="deliver_best"))
    result = await rig.run(app, {"topic": "tides"})
    terminated = one([s for s in result.signals if s.agent == "worker"], "terminated")
    assert (terminated["status"], terminated["limit"]["code"]) == ("incomplete", "MAX_ITERATIONS")
    assert len(CALLS) == 2
    signals = [signal for signal in result.signals if signal.agent == "worker"]
    assert {each["decision"] for each in payloads(signals, "reflection_complete")} == {"iteration_needed"}


@pytest.mark.proves("LC-73")
async def test_executed_plan_ends_partial_before_the_model_step_that_exceeds_max_steps(rig: Rig) -> None:
    def reply(request: ModelRequest) -> Any:
        if of_model(request) == "plan":
            return ModelReply("", output={"steps": [{"kind": "model", "prompt": f"part {n}"} for n in range(1, 5)]})
        prompts.append(request.prompt)
        return f"reply {len(prompts)}"

    prompts: list[str] = []
    app = Heliograph("long")
    app.prompt_agent(
        "worker", "Work.", model=ScriptedModel(reply), activate_on=START, updates="out", plan=True, max_steps=3
    )
    result = await rig.run(app)
    assert prompts == ["part 1", "part 2", "part 3"]
    terminated = one(result.signals, "terminated")
    assert (terminated["status"], terminated["outputs"]) == ("partial", ["reply 3"])
    message = "the plan has more than 3 model steps (max_steps)"
    assert terminated["limit"] == {"code": "RESOURCE_EXHAUSTED", "message": message, "recoverable": False}


@pytest.mark.proves("LC-40")
async def test_model_that_reflects_reads_the_success_criteria_of_its_task(rig: Rig) -> None:
    requests: list[ModelRequest] = []

    def reply(request: ModelRequest) -> Any:
        requests.append(request)
        return ModelReply("", output={"goal_achieved": True}) if of_model(request) == "reflect" else "done"

    app = Heliograph("criteria")

    @app.agent(activate_on=START)
    async def lead(ctx: Context) -> Any:
        return await ctx.delegate("worker", {"success_criteria": ["two sources"]})

    app.prompt_agent("worker", "Work.", model=ScriptedModel(reply), on_request=True, reflect=True)
    await rig.run(app)
    assert UserMessage('Success criteria: ["two sources"]') in requests[-1].messages


async def test_plan_of_a_schema_is_followed_by_the_agent_loop_in_each_round(rig: Rig) -> None:
    requests: list[ModelRequest] = []

    def reply(request: ModelRequest) -> Any:
        requests.append(request)
        match of_model(request):
            case "plan":
                return ModelReply("", output={"outline": ["a", "b"]})
            case "reflect":
                return ModelReply(
                    "", output={"goal_achieved": len(requests) > 6, "reason": "again", "resume_at": "act"}
                )
        has_result = any("found" in str(message) for message in request.messages)
        return "done" if has_result else [ToolCall("x1", "search", {"query": f"q{len(requests)}"})]

    app = Heliograph("outlined")
    app.prompt_agent("worker", "Work.", model=ScriptedModel(reply), activate_on=START, updates="out", tools=[search],
                     plan=dict[str, list[str]], reflect=True)  # fmt: skip
    result = await rig.run(app)
    assert result.state == {"out": "done"}
    assert CALLS == ["q2", "q5"]
    assert any('Follow this plan: {"outline": ["a", "b"]}' in str(message) for message in requests[1].messages)
    assert one(result.signals, "plan_ready")["plan"] == {"outline": ["a", "b"]}


@pytest.mark.proves("LC-41")
async def test_learnings_of_a_reflect_hook_are_stored_once(rig: Rig) -> None:
    app = Heliograph("learns")

    @app.agent(activate_on=START)
    class Learner(Agent):
        def act(self, _ctx: PhaseContext) -> str:
            return "done"

        async def reflect(self, ctx: PhaseContext) -> GoalAchieved:
            await ctx.pause(0.01)
            return GoalAchieved(learnings=["cite the archive"])

    await rig.run(app)
    [hit] = await rig.runtime.ledger.recall("archive", "Learner", 5)
    assert hit["metadata"]["outcome"] == "goal_achieved"


@pytest.mark.proves("LC-41")
async def test_reflect_phase_without_learnings_stores_its_decision(rig: Rig) -> None:
    app = Heliograph("decides")

    @app.agent(activate_on=START)
    class Decider(Agent):
        def act(self, _ctx: PhaseContext) -> str:
            return "done"

        def reflect(self, ctx: PhaseContext) -> GoalAchieved | IterationNeeded:
            return GoalAchieved() if ctx.iteration else IterationNeeded("no sources")

    await rig.run(app)
    turn = await rig.turn_of("Decider")
    hits = await rig.runtime.ledger.recall("", "Decider", 5)
    assert [(hit["text"], hit["metadata"]) for hit in reversed(hits)] == [
        ("iteration_needed: no sources", {"task_id": turn.turn_id, "outcome": "iteration_needed", "learnings": []}),
        ("goal_achieved", {"task_id": turn.turn_id, "outcome": "goal_achieved", "learnings": []}),
    ]
