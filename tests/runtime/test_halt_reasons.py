"""The runtime itself halts a turn that exceeds a budget or breaks a rule; the log and the wire name the reason."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from heliograph import Context, Heliograph, tool
from heliograph.agents import Agent
from heliograph.codes import POLICY_VIOLATION, RESOURCE_LIMIT
from heliograph.errors import AgentFailed, BudgetExceeded, DelegationFailed, Denied, ToolFailed
from heliograph.models import ModelReply, ScriptedModel
from heliograph.phases import PhaseContext, Plan, ToolStep
from heliograph.policy.egress import EgressRejected
from heliograph.tools import MCPServer
from heliograph.turn.halt_reasons import halt_reason_of
from tests.runtime.gateway_kit import SECRET
from tests.runtime.human_task_kit import open_tasks
from tests.runtime.kit import START, Rig, lost, names, one
from tests.runtime.loop_kit import agent, call
from tests.runtime.taint_kit import MAIL, mail
from tests.runtime.test_agent_loop import add


async def halt_of(rig: Rig, run_id: str) -> dict[str, Any]:
    """The only halt of a run, which must be the same in the log and on the wire, and stand before the end of its turn."""
    signals = await rig.runtime.reader.all_signals(run_id)
    logged = one(signals, "halt")
    assert names(signals).index("halt") < names(signals).index("terminated")
    [sent] = [each async for each in rig.client.control_signals(run_id) if each.signal.type == "halt"]
    assert (sent.source, sent.signal.payload.to_wire()) == ("runtime", logged)
    return logged  # type: ignore[no-any-return]


def planned(tools: Any, *steps: ToolStep, **options: Any) -> Heliograph:
    """An application whose agent executes these steps."""
    app = Heliograph("planned")

    class Planner(Agent):
        def plan(self, _ctx: PhaseContext) -> Plan:
            return Plan(list(steps))

    app.agent(name="payer", activate_on=START, tools=tools, model=ScriptedModel(["no model step"]), **options)(Planner)
    return app


@pytest.mark.proves("CTL-32")
@pytest.mark.parametrize("is_caught", [False, True])
async def test_turn_that_fails_at_its_budget_is_halted_as_resource_limit(rig: Rig, is_caught: bool) -> None:
    app = Heliograph("costs")

    @app.agent(activate_on=START, budget={"tool_calls": 1}, updates="out")
    async def spender(ctx: Context) -> Any:
        try:
            return await ctx.call("a") and await ctx.call("b")
        except BudgetExceeded:
            if is_caught:
                return "enough"
            raise

    run_id = await rig.start(app)
    async with rig.serving(app):
        [command] = await rig.taken("a")
        await command.report(result=1)
        await rig.ended(run_id)
    if is_caught:
        assert "halt" not in names(await rig.runtime.reader.all_signals(run_id))
        return
    halt = await halt_of(rig, run_id)
    assert (halt["reason"], halt["graceful"]) == (RESOURCE_LIMIT, True)
    assert "tool_calls" in halt["message"]


@pytest.mark.proves("CTL-32")
async def test_model_agent_that_its_budget_cuts_short_is_halted_as_resource_limit(rig: Rig) -> None:
    model = ScriptedModel([ModelReply("so far: 3", tool_calls=(call("add", {"a": 1, "b": 2}),))])
    result = await rig.run(agent(model, [add], budget={"model_calls": 1}))
    halt = await halt_of(rig, result.run_id)
    assert (halt["reason"], result.state["out"]) == (RESOURCE_LIMIT, "so far: 3")


@pytest.mark.proves("CTL-33")
async def test_turn_that_calls_a_forbidden_address_is_halted_as_policy_violation(rig: Rig) -> None:
    rig.runtime.settings = replace(rig.runtime.settings, gateway_secrets=(SECRET,))
    route = {"match": {"target_agent": "far"}, "destination": {"gateway": "http://127.0.0.1:1/"}}
    app = Heliograph("leaks", routes={"kind": "MessageRouting", "routes": [route]})

    @app.agent(activate_on=START)
    async def caller(ctx: Context) -> Any:
        return await ctx.delegate("far", {"secret": 1})

    run_id = await rig.start(app)
    async with rig.serving(app):
        await rig.ended(run_id)
    halt = await halt_of(rig, run_id)
    assert halt["reason"] == POLICY_VIOLATION
    failed = one(await rig.runtime.reader.all_signals(run_id), "agent:failed")
    assert (failed["outcome"], failed["error"]["code"]) == ("failed", "DELEGATION_ERROR")


@pytest.mark.proves("CTL-33")
async def test_tool_call_to_a_forbidden_gateway_is_halted_as_policy_violation(rig: Rig) -> None:
    rig.runtime.settings = replace(rig.runtime.settings, gateway_secrets=(SECRET,))
    route = {"match": {"tool_name": "far"}, "destination": {"gateway": "http://127.0.0.1:1/"}}
    app = Heliograph("leaks", routes={"kind": "MessageRouting", "routes": [route]})

    @app.agent(activate_on=START)
    async def caller(ctx: Context) -> Any:
        return await ctx.call("far", {"secret": 1})

    run_id = await rig.start(app)
    async with rig.serving(app):
        await rig.ended(run_id)
    assert (await halt_of(rig, run_id))["reason"] == POLICY_VIOLATION
    log = await rig.runtime.reader.all_signals(run_id)
    assert one(log, "agent:failed")["error"]["code"] == "TOOL_ERROR"
    assert one(log, "tool:result")["error"]["details"] == {"reason": "egress_rejected"}


@pytest.mark.proves("CTL-33")
async def test_agent_whose_server_has_a_forbidden_address_is_halted_as_policy_violation(rig: Rig) -> None:
    result = await rig.run(agent(ScriptedModel(["never called"]), [MCPServer(url="http://127.0.0.1:1/mcp")], retries=0))
    assert result.outcome == "failed"
    assert (await halt_of(rig, result.run_id))["reason"] == POLICY_VIOLATION


@pytest.mark.proves("CTL-33")
@pytest.mark.parametrize("required_by", ["untrusted content", "the tool"])
async def test_denial_halts_as_policy_violation_if_untrusted_content_required_the_approval(
    rig: Rig, required_by: str
) -> None:
    @tool(effect="once", approval=required_by == "the tool")
    def pay(amount: int) -> str:
        """Pay."""
        raise AssertionError("it was denied")

    app = planned([mail, pay], ToolStep("mail"), ToolStep("pay", {"amount": 5}))
    run_id = await rig.start(app)
    async with rig.serving(app):
        [task] = await open_tasks(rig, run_id=run_id)
        await rig.client.deny(task.turn_id, task.call_id, by="ann")
        log = await rig.ended(run_id)
    assert one(log, "agent:failed")["error"]["code"] == "DENIED"
    if required_by == "the tool":
        assert "halt" not in names(log)
    else:
        assert (await halt_of(rig, run_id))["reason"] == POLICY_VIOLATION


@pytest.mark.proves("CTL-33")
async def test_denied_question_of_an_agent_that_has_read_untrusted_content_halts_nothing(rig: Rig) -> None:
    app = Heliograph("asks")

    @app.agent(activate_on=START)
    async def asker(ctx: Context) -> None:
        await ctx.approve(f"Forward {await ctx.call('fetch')}?")

    run_id = await rig.start(app)
    async with rig.serving(app):
        [command] = await rig.taken("fetch")
        await command.report(result=MAIL)
        [task] = await open_tasks(rig, run_id=run_id)
        await rig.client.deny(task.turn_id, task.call_id)
        log = await rig.ended(run_id)
    assert one(log, "agent:failed")["error"]["code"] == "DENIED"
    assert "halt" not in names(log)


@pytest.mark.proves("CTL-32")
async def test_turn_whose_plan_exceeds_its_budget_is_halted_as_resource_limit(rig: Rig) -> None:
    step = ToolStep("add", {"a": 1, "b": 1})
    result = await rig.run(planned([tool(add)], step, step, budget={"tool_calls": 1}))
    assert one(result.signals, "agent:failed")["error"]["code"] == "BUDGET_EXCEEDED"
    assert (await halt_of(rig, result.run_id))["reason"] == RESOURCE_LIMIT


@pytest.mark.proves("CTL-32")
@pytest.mark.parametrize("lost_in", ["act", "terminate"])
async def test_halt_at_a_budget_occurs_once_although_its_worker_is_lost(rig: Rig, lost_in: str) -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()
    app = Heliograph("planned")

    async def hang(phase: str) -> None:
        if phase == lost_in:
            begun.set()
            await may_end.wait()

    @app.agent(name="payer", activate_on=START, budget={"tool_calls": 1})
    class Payer(Agent):
        async def act(self, ctx: PhaseContext) -> None:
            await ctx.step("first", lambda: 1)
            try:
                await ctx.step("second", lambda: 2)
            finally:
                await hang("act")

        async def terminate(self, _ctx: PhaseContext) -> None:
            await hang("terminate")

    run_id = await lost(rig, app, begun)
    may_end.set()
    async with rig.serving(app), rig.serving(app):
        log = await rig.ended(run_id)
    assert (await halt_of(rig, run_id))["reason"] == RESOURCE_LIMIT
    assert one(log, "agent:failed")["error"]["code"] == "BUDGET_EXCEEDED"
    assert names(log).index("halt") == names(log).index("error") - 1


@pytest.mark.proves("CTL-32", "CTL-33")
@pytest.mark.parametrize(
    ("code", "key"),
    [
        ("BUDGET_EXCEEDED", "budget"), ("CIRCUIT_OPEN", "circuit"), ("RATE_LIMITED", "rate"), ("egress_rejected", "egress"),
        ("DENIED", "untrusted"),
    ],
)  # fmt: skip
async def test_error_that_a_tool_reports_halts_and_replaces_nothing(rig: Rig, code: str, key: str) -> None:
    app, raised = Heliograph("far"), list[ToolFailed]()

    def fallback(_error: Any) -> Any:
        raise AssertionError("the call was made")

    @app.agent(activate_on=START)
    async def caller(ctx: Context) -> Any:
        try:
            return await ctx.call("far", fallback=fallback)
        except ToolFailed as error:
            raised.append(error)
            raise

    run_id = await rig.start(app)
    async with rig.serving(app):
        [command] = await rig.taken("far")
        await command.report(error={"code": code, "message": "one of theirs", "recoverable": False, key: {"url": "x"}})
        log = await rig.ended(run_id)
    assert "halt" not in names(log)
    assert [type(error) for error in raised] == [ToolFailed]
    assert one(log, "agent:failed")["error"]["message"] == "far (call c1): one of theirs"


@pytest.mark.proves("CTL-32", "CTL-33")
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (BudgetExceeded("no more"), RESOURCE_LIMIT),
        (Denied("ann said no", error={"untrusted": True}), POLICY_VIOLATION),
        (Denied("ann said no"), None),
        (EgressRejected("not this host"), POLICY_VIOLATION),
        (ToolFailed("the call failed", error={"egress": {"url": "http://10.0.0.1/"}}), POLICY_VIOLATION),
        (DelegationFailed("the task failed", error={"egress": {"url": "http://10.0.0.1/"}}), POLICY_VIOLATION),
        (DelegationFailed("the task was not sent", error={"budget": {"kind": "tool_calls"}}), RESOURCE_LIMIT),
        (DelegationFailed("the task failed", error={"code": "BUDGET_EXCEEDED"}), None),
        (ToolFailed("the call failed", error={"code": "egress_rejected"}), None),
        (ToolFailed("the call failed", code="BUDGET_EXCEEDED"), None),
        (AgentFailed("no"), None),
        (ValueError("no"), None),
    ],
)
def test_reason_of_a_halt_follows_from_the_failure(error: Exception, reason: str | None) -> None:
    assert halt_reason_of(error) == reason


@pytest.mark.proves("CTL-33")
def test_error_that_a_forbidden_address_causes_is_a_policy_violation() -> None:
    error = AgentFailed("the server cannot be used")
    error.__cause__ = EgressRejected("not this host")
    assert halt_reason_of(error) == POLICY_VIOLATION
