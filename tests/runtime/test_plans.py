"""Plans: the runtime executes their steps, unless they name something that does not exist."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from heliograph import Context, Heliograph, tool
from heliograph.agents import Agent
from heliograph.errors import ToolFailed
from heliograph.models import ScriptedModel
from heliograph.phases import DelegationStep, Lifecycle, ModelStep, PhaseContext, Plan, ToolStep
from tests.runtime.hooks_kit import PHASES, of_phases
from tests.runtime.kit import START, Rig, lost, one
from tests.runtime.plans_kit import CALLS, executing, search

pytestmark = pytest.mark.more  # each test runs all phases several times


@pytest.fixture(autouse=True)
def no_calls() -> None:
    CALLS.clear()


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


@pytest.mark.proves("CTL-32", "ERR-06")
@pytest.mark.parametrize("policy", ["terminate", "skip", "no plan"])
async def test_delegation_that_a_budget_does_not_allow_has_the_code_of_the_budget(rig: Rig, policy: Any) -> None:
    route = {"match": {"target_agent": "clerk"}, "destination": {"gateway": "https://far.example/"}}
    app = Heliograph("delegating", routes={"kind": "MessageRouting", "routes": [route]})

    class Planner(Agent):
        def plan(self, _ctx: PhaseContext) -> Plan:
            return Plan([DelegationStep("clerk", {})])

    async def caller(ctx: Context) -> Any:
        return await ctx.delegate("clerk", {})

    options: Any = {} if policy == "no plan" else {"lifecycle": Lifecycle(on_tool_error=policy), "agents": ["clerk"]}
    app.agent(name="worker", activate_on=START, budget={"tool_calls": 0}, **options)(
        caller if policy == "no plan" else Planner
    )
    signals = (await rig.run(app)).signals
    if policy == "skip":
        error: Any = one(signals, "action_complete")["actions"][0]["error"]
    else:
        error = one(signals, "agent:failed")["error"]
        assert one(signals, "halt")["reason"] == "resource_limit"
    assert (error["code"], error.get("details")) == ("BUDGET_EXCEEDED", None)


@pytest.mark.proves("LC-97")
async def test_delegation_step_that_a_budget_ends_is_not_repeated(rig: Rig, quick: None) -> None:
    app = Heliograph("delegating")
    app.agent(name="worker", activate_on=START, agents=["clerk"], budget={"tool_calls": 0})(
        type("Planner", (Agent,), {"plan": lambda *_: Plan([DelegationStep("clerk", "b")])})
    )

    @app.agent(on_request=True)
    async def clerk(ctx: Context) -> None:
        await ctx.step("stamp", lambda: None)

    signals = (await rig.run(app)).signals
    assert [signal.agent for signal in signals if signal.name == "agent:failed"] == ["clerk", "worker"]
