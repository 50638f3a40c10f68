"""Plans: the runtime executes their steps, and a model writes them and reflects on their results."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from heliograph import (
    Agent,
    Context,
    DelegationStep,
    GoalAchieved,
    Heliograph,
    IterationNeeded,
    Lifecycle,
    ModelReply,
    ModelRequest,
    ModelStep,
    PhaseContext,
    Plan,
    ScriptedModel,
    ToolCall,
    ToolFailed,
    ToolStep,
    UserMessage,
    tool,
)
from tests.reach.model_server import Answer, Provider
from tests.runtime.hooks_kit import PHASES, of_phases
from tests.runtime.kit import START, Rig, lost, one
from tests.runtime.loop_kit import payloads

pytestmark = pytest.mark.more  # each test runs all phases several times

CALLS: list[Any] = []


@pytest.fixture(autouse=True)
def no_calls() -> None:
    CALLS.clear()


@tool(effect="pure")
def search(query: str) -> str:
    """Search the archive."""
    CALLS.append(query)
    return f"found {query}"


@tool(effect="idempotent")
def fetch(page: int) -> str:
    """Fetch a page."""
    CALLS.append(page)
    if len(CALLS) < page:
        raise ToolFailed("busy", error={"recoverable": True})
    return f"page {page}"


def charge(amount: int) -> str:
    """Charge a card."""
    CALLS.append(amount)
    raise RuntimeError("declined")


def executing(*steps: Any, tools: Any = (search, fetch, charge), **options: Any) -> Heliograph:
    """An application whose agent executes these steps, with an agent `clerk` and a model that echoes."""
    app = Heliograph("planned")

    class Planner(Agent):
        def plan(self, _ctx: PhaseContext) -> Plan:
            return Plan(list(steps))

    model = ScriptedModel(lambda request: f"read {len(request.messages)}: {request.prompt}")
    app.agent(name="worker", activate_on=START, updates="out", tools=tools, agents=["clerk"], model=model, **options)(
        Planner
    )

    @app.agent(name="clerk", on_request=True)
    async def clerk(ctx: Context) -> Any:
        return {"filed": ctx.task}

    return app


@pytest.mark.proves("LC-20", "LC-23", "LC-25", "LC-30", "LC-31", "LC-32", "LC-33", "LC-35", "LC-11")
async def test_steps_of_each_kind_run_in_order_and_their_results_are_kept(rig: Rig) -> None:
    app = executing(ToolStep("search", {"query": "a"}), DelegationStep("clerk", "b"), ModelStep("sum up"))
    result = await rig.run(app)
    signals = [signal for signal in result.signals if signal.agent == "worker"]
    plan = one(signals, "plan_ready")
    assert (plan["steps"], plan["tools_required"]) == (3, ["search", "delegate_to_clerk"])
    done = one(signals, "action_complete")
    assert (done["steps_executed"], done["success"]) == (3, True)
    assert done["actions"] == [
        {"kind": "tool_call", "name": "search", "success": True, "output": "found a"},
        {"kind": "delegation", "name": "clerk", "success": True, "output": {"filed": "b"}},
        {"kind": "model", "name": "model", "success": True, "output": "read 2: sum up"},
    ]
    assert result.state == {"out": "read 2: sum up"}
    logged: list[Any] = list(result.signals)
    order = [s.payload["name"] if s.name == "tool:call" else s.name for s in logged
             if s.name in ("tool:call", "delegation", "harness:start")]  # fmt: skip
    assert order == ["search", "delegation", "harness:start"]
    turn = await rig.turn_of("worker")
    cards: list[Any] = [c.content for c in await rig.runtime.reader.cards(turn.turn_id) if c.kind == "tool.result"]
    assert [card["call_id"] for card in cards][2:] == ["act-1-m1-1", "act-1-m2-1", "act-1-m3"]
    assert of_phases(signals) == PHASES


@pytest.mark.proves("LC-30")
async def test_worker_lost_between_steps_repeats_no_step(rig: Rig) -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()

    @tool(effect="idempotent")
    async def hang() -> str:
        """Hang once."""
        begun.set()
        await may_end.wait()
        return "hung"

    app = executing(ToolStep("search", {"query": "a"}), ToolStep("hang"), tools=[search, hang])
    run_id = await lost(rig, app, begun)
    may_end.set()
    async with rig.serving(app):
        signals = await rig.ended(run_id)
    assert CALLS == ["a"]
    assert one(signals, "workflow:end")["state"] == {"out": "hung"}


@pytest.mark.proves("LC-96", "LC-97", "LC-80")
async def test_failed_step_is_repeated_as_often_as_the_lifecycle_allows(rig: Rig, quick: None) -> None:
    assert (Lifecycle().on_tool_error, Lifecycle().max_tool_retries) == ("retry", 3)
    assert (await rig.run(executing(ToolStep("fetch", {"page": 4})))).state == {"out": "page 4"}
    assert CALLS == [4, 4, 4, 4]
    CALLS.clear()
    signals = (await rig.run(executing(ToolStep("fetch", {"page": 5})))).signals
    assert CALLS == [5, 5, 5, 5]
    error = one(signals, "agent:failed")["error"]
    assert (error["code"], error["message"]) == ("TOOL_ERROR", "step 1 of the plan (fetch) failed: busy")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heliograph.policy.retry.RetryPolicy.delay_seconds", lambda *_: 0.001)


@pytest.mark.proves("LC-96")
@pytest.mark.parametrize(("policy", "calls"), [("retry", [7]), ("terminate", [7]), ("skip", [7, "a"])])
async def test_step_whose_effect_may_not_repeat_is_made_once_under_every_policy(
    rig: Rig, policy: Any, calls: list[Any]
) -> None:
    steps = ToolStep("charge", {"amount": 7}), ToolStep("search", {"query": "a"})
    result = await rig.run(executing(*steps, lifecycle=Lifecycle(on_tool_error=policy)))
    assert calls == CALLS
    if policy == "skip":
        done = one(result.signals, "action_complete")
        assert (done["success"], [each["success"] for each in done["actions"]]) == (False, [False, True])
        terminated = one(result.signals, "terminated")
        assert (terminated["status"], terminated["outputs"]) == ("partial", ["found a"])
        assert one(result.signals, "reflection_complete")["decision"] == "iteration_needed"
    else:
        assert one(result.signals, "agent:failed")["error"]["code"] == "TOOL_ERROR"


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (ToolStep("serch"), "calls the tool serch, which agent worker does not have; did you mean search?"),
        (ToolStep("nothing"), "calls the tool nothing, which agent worker does not have; it has search, fetch, charge, delegate_to_clerk"),
        (ToolStep("ask_human"), "calls the tool ask_human, which agent worker does not have; it has search, fetch, charge, "
                                "delegate_to_clerk"),
        (DelegationStep("clerc", "x"), "delegates to the agent clerc, which agent worker does not have; did you mean clerk?"),
        (DelegationStep("worker", "x"), "delegates to the agent worker, which agent worker does not have; it has clerk"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("policy", ["retry", "skip"])
async def test_plan_with_an_unknown_name_fails_before_its_first_step(
    rig: Rig, step: Any, message: str, policy: Any
) -> None:
    app = executing(ToolStep("search", {"query": "a"}), step, lifecycle=Lifecycle(on_tool_error=policy))
    signals = (await rig.run(app)).signals
    error = one(signals, "error")
    assert (error["error_code"], error["details"]["phase"], CALLS) == ("PLAN_FAILED", "plan", [])
    assert error["message"] == f"step 2 of the plan {message}"
    assert of_phases(signals) == ["ready", "error", "terminated"]


@pytest.mark.proves("LC-31")
async def test_plan_may_name_each_tool_of_its_agent(rig: Rig) -> None:
    steps = [
        ToolStep("search", {"query": "a"}),
        ToolStep("delegate_to_clerk", {"task": "b"}),
        DelegationStep("clerk", "c"),
    ]
    assert (await rig.run(executing(*steps))).state == {"out": {"filed": "c"}}


@pytest.mark.parametrize(
    ("steps", "models", "problem"),
    [
        ([ToolStep("nothing")], None, "calls the tool nothing, which agent worker does not have; it has none: list them in its option tools"),
        ([ModelStep("go")], None, "is a model step, and agent worker has no model that exists: no model: set HELIOGRAPH_MODEL"),
        ([ModelStep("go")], ["no-such-provider:x"], "is a model step, and agent worker has no model that exists: "),
        ([ModelStep("go")], ["no-such-provider:x", ScriptedModel(["done"])], None),
    ],
)  # fmt: skip
async def test_plan_of_an_agent_without_tools_and_models_fails(
    rig: Rig, steps: list[Any], models: Any, problem: str | None
) -> None:
    app = Heliograph("toolless")
    app.agent(name="worker", activate_on=START, model=models)(
        type("Toolless", (Agent,), {"plan": lambda *_: Plan(steps)})
    )
    signals = (await rig.run(app)).signals
    if problem is None:
        assert one(signals, "terminated")["outputs"] == ["done"]
    else:
        error = one(signals, "error")
        assert (error["error_code"], error["details"]["phase"]) == ("PLAN_FAILED", "plan")
        assert error["message"].startswith(f"step 1 of the plan {problem}")


async def test_step_with_wrong_arguments_fails_the_act_phase(rig: Rig) -> None:
    error = one((await rig.run(executing(ToolStep("search", {"q": 1})))).signals, "agent:failed")["error"]
    assert error["code"] == "TOOL_ERROR"
    assert "the arguments of search are invalid" in error["message"]


@pytest.mark.proves("ERR-06", "LC-82")
@pytest.mark.parametrize("policy", ["terminate", "skip"])
async def test_delegation_step_that_fails_has_its_own_code_and_that_of_the_child_in_its_details(
    rig: Rig, policy: Any
) -> None:
    async def clerk(_ctx: Context) -> None:
        raise ToolFailed("no ink", code="NO_INK", details={"shelf": 3})

    app = Heliograph("delegating")
    steps: list[Any] = [DelegationStep("clerk", "b"), ModelStep("sum up")]
    app.agent(name="worker", activate_on=START, agents=["clerk"], model=ScriptedModel(["done"]),
              lifecycle=Lifecycle(on_tool_error=policy))(type("Planner", (Agent,), {"plan": lambda *_: Plan(steps)}))  # fmt: skip
    app.agent(name="clerk", on_request=True)(clerk)
    signals = [signal for signal in (await rig.run(app)).signals if signal.agent == "worker"]
    if policy == "skip":
        error: Any = one(signals, "action_complete")["actions"][0]["error"]
        assert error.pop("recoverable") is False
        assert "no ink" in error.pop("message")
    else:
        failed = one(signals, "agent:failed")["error"]
        error = {"code": failed["code"], "details": failed["details"]}
        assert failed["message"].startswith("step 1 of the plan (clerk) failed: ")
        assert one(signals, "error")["details"] | {"phase": "act"} == {
            **error["details"],
            "phase": "act",
            "scope": "turn",
        }
    assert error == {"code": "DELEGATION_ERROR", "details": {"shelf": 3, "reason": "NO_INK"}}


# ── Plans of a model ──


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
        return ModelReply("", {"steps": []})

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
                return ModelReply("", THREE)
            case "reflect":
                return ModelReply("", {"goal_achieved": False, "reason": "no sources"})
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
            return ModelReply("", {"steps": [{"kind": "model", "prompt": f"part {n}"} for n in range(1, 5)]})
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
        return ModelReply("", {"goal_achieved": True}) if of_model(request) == "reflect" else "done"

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
                return ModelReply("", {"outline": ["a", "b"]})
            case "reflect":
                return ModelReply("", {"goal_achieved": len(requests) > 6, "reason": "again", "resume_at": "act"})
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
