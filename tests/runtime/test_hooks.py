"""Agents with hooks: each hook runs once, its end is recorded once, and its results reach the later hooks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from heliograph import (
    Agent,
    AgentFailed,
    Context,
    Delegation,
    GoalAchieved,
    Heliograph,
    Lifecycle,
    ModelStep,
    PhaseContext,
    Plan,
    ToolFailed,
    ToolStep,
)
from tests.runtime.hooks_kit import ORDER, PHASES, Hooked, of_phases
from tests.runtime.kit import START, Rig, lost, names, one, until
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
             for card in await rig.runtime.reader.cards((await rig.turn_of("worker")).turn_id) if card.kind == "tool.result"}  # fmt: skip
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


@pytest.mark.more
async def test_signals_of_all_hooks_are_emitted_once_at_the_end(rig: Rig) -> None:
    async def emit(ctx: PhaseContext) -> None:
        ctx.emit("worked", ctx.phase)
        await ctx.pause(0.01)

    hooked = Hooked(**dict.fromkeys(("plan", "act", "terminate"), emit))
    signals = (await rig.run(hooked.app(emits=["worked"]))).signals
    assert payloads(signals, "worked") == ["plan", "act", "terminate"]


@pytest.mark.proves("LC-81", "LC-82", "LC-65")
@pytest.mark.parametrize(
    ("phase", "code"),
    [("plan", "PLAN_FAILED"), ("act", "ACTION_FAILED"), ("reflect", "REFLECTION_ERROR"), ("init", "INIT_FAILED")],
)
async def test_hook_that_raises_ends_the_turn_with_the_code_of_its_phase_after_terminate(
    rig: Rig, phase: str, code: str
) -> None:
    async def fail(_ctx: PhaseContext) -> None:
        raise ValueError("no ink")

    async def terminate(ctx: PhaseContext) -> str:
        assert ctx.error is not None
        seen.append((ctx.outcome, ctx.error["code"], ctx.output))
        return "ignored"

    seen: list[Any] = []
    hooked = Hooked(**{phase: fail}, terminate=terminate)
    signals = (await rig.run(hooked.app(lifecycle=Lifecycle(init_retries=0)))).signals
    assert hooked.ran == [*ORDER[: ORDER.index(phase) + 1], "terminate"]
    assert seen == [("failed", code, None)]
    error = one(signals, "error")
    assert (error["error_code"], error["message"], error["details"]["phase"]) == (code, "ValueError: no ink", phase)
    assert one(signals, "terminated") == {"status": "failed", "outputs": []}
    assert one(signals, "agent:failed")["error"]["code"] == code
    assert of_phases(signals)[-2:] == ["error", "terminated"]


async def test_error_of_a_hook_is_recorded_so_that_a_lost_terminate_hook_repeats_alone(rig: Rig) -> None:
    begun = asyncio.Event()

    async def fail(_ctx: PhaseContext) -> None:
        raise ValueError("no ink")

    async def terminate(ctx: PhaseContext) -> None:
        if ctx.attempt == 1:
            begun.set()
            await asyncio.Event().wait()

    hooked = Hooked(plan=fail, terminate=terminate)
    run_id = await lost(rig, hooked.app(), begun)
    async with rig.serving(hooked.app()):
        signals = await rig.ended(run_id)
    assert hooked.ran == ["init", "plan", "terminate", "terminate"]
    assert of_phases(signals) == ["ready", "error", "terminated"]


@pytest.mark.proves("LC-14", "LC-24", "LC-34", "LC-42", "LC-90", "G-04")
@pytest.mark.parametrize("phase", ORDER[:-1])
async def test_timeout_of_a_phase_counts_its_running_time_and_not_its_waits(rig: Rig, phase: str) -> None:
    async def late(ctx: PhaseContext) -> None:
        await ctx.pause(0.3)
        await asyncio.Event().wait()

    hooked = Hooked(**{phase: late})
    limit: dict[str, Any] = {} if phase == "act" else {f"{phase}_timeout_seconds": 0.2}
    app = hooked.app(timeout_seconds=0.2 if phase == "act" else 300, lifecycle=Lifecycle(**limit))
    signals = (await rig.run(app)).signals
    error = one(signals, "agent:failed")["error"]
    assert (error["code"], error["details"]) == ("TIMEOUT", {"phase": phase, "scope": "phase"})
    assert error["message"] == f"phase {phase} of agent worker ran longer than 0.2 s"
    assert one(signals, "terminated")["status"] == "timeout"
    assert hooked.ran.count(phase) == 2
    assert hooked.ran[-1] == "terminate"


@pytest.mark.proves("LC-71", "G-10", "G-04")
async def test_lifetime_of_a_turn_ends_a_phase_early_and_leaves_time_for_terminate(rig: Rig) -> None:
    async def late(_ctx: PhaseContext) -> None:
        await asyncio.Event().wait()

    hooked = Hooked(act=late)
    signals = (await rig.run(hooked.app(ttl_seconds=15.5))).signals
    error = one(signals, "agent:failed")["error"]
    assert error["details"] == {"phase": "act", "scope": "total"}
    assert "reached the end of the turn's lifetime (ttl_seconds)" in error["message"]
    assert hooked.ran[-1] == "terminate"


@pytest.mark.proves("LC-94", "LC-95")
@pytest.mark.parametrize("policy", ["terminate", "deliver_best"])
@pytest.mark.parametrize("limit", ["on_timeout", "on_resource_exhausted"])
async def test_policy_of_a_limit_fails_the_turn_or_delivers_its_last_output(rig: Rig, limit: str, policy: Any) -> None:
    async def reflect(_ctx: PhaseContext) -> None:
        if limit == "on_timeout":
            await asyncio.Event().wait()
        raise AgentFailed("the disk is full", code="RESOURCE_EXHAUSTED")

    options: dict[str, Any] = {limit: policy}
    lifecycle = Lifecycle(reflect_timeout_seconds=0.1 if limit == "on_timeout" else 30, **options)
    result = await rig.run(Hooked(reflect=reflect).app(lifecycle=lifecycle))
    terminated = one(result.signals, "terminated")
    code = "TIMEOUT" if limit == "on_timeout" else "RESOURCE_EXHAUSTED"
    if policy == "deliver_best":
        assert (terminated["status"], terminated["outputs"], terminated["limit"]["code"]) == ("partial", ["done"], code)
    else:
        assert terminated == {"status": "timeout" if limit == "on_timeout" else "failed", "outputs": []}
    assert one(result.signals, "error")["error_code"] == code


@pytest.mark.proves("LC-91", "LC-92")
async def test_failed_init_is_repeated_by_deferral_as_often_as_the_lifecycle_allows(rig: Rig, soon: None) -> None:
    async def fail(ctx: PhaseContext) -> None:
        deferrals.append(ctx.deferrals)
        raise OSError("no route")

    deferrals: list[int] = []
    assert Lifecycle().init_retries == 3
    signals = (await rig.run(Hooked(init=fail).app())).signals
    assert deferrals == [0, 1, 2, 3]
    error = one(signals, "agent:failed")["error"]
    assert (error["code"], error["message"]) == ("INIT_FAILED", "OSError: no route")


@pytest.mark.proves("LC-80", "LC-106")
async def test_error_policy_of_a_code_repeats_the_phase(rig: Rig, soon: None) -> None:
    async def fail(ctx: PhaseContext) -> None:
        if ctx.deferrals < 2:
            raise ToolFailed("the line is busy", code="NETWORK_ERROR")

    hooked = Hooked(plan=fail)
    result = await rig.run(hooked.app(lifecycle=Lifecycle(error_retries={"NETWORK_ERROR": 2})))
    assert result.state == {"out": "done"}
    assert hooked.ran == ["init", "plan", "plan", "plan", "act", "reflect", "terminate"]
    refused = await rig.run(Hooked(plan=fail).app())
    assert one(refused.signals, "error")["error_code"] == "NETWORK_ERROR"


@pytest.mark.proves("LC-106")
async def test_error_policy_of_a_timeout_repeats_the_phase(rig: Rig, soon: None) -> None:
    async def late(ctx: PhaseContext) -> None:
        if not ctx.deferrals:
            await asyncio.Event().wait()

    lifecycle = Lifecycle(plan_timeout_seconds=0.1, error_retries={"TIMEOUT": 1})
    hooked = Hooked(plan=late)
    assert (await rig.run(hooked.app(lifecycle=lifecycle))).state == {"out": "done"}
    assert hooked.ran == ["init", "plan", "plan", "act", "reflect", "terminate"]


@pytest.mark.proves("LC-10", "LC-104")
@pytest.mark.parametrize("phases", [ORDER, []], ids=["hooks", "function"])
async def test_missing_credential_fails_init_once_and_is_named_without_a_value(
    rig: Rig, phases: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRESENT_KEY", "sk-present-value")
    hooked = Hooked([phase for phase in phases if phase != "terminate"])
    signals = (await rig.run(hooked.app(credentials=["PRESENT_KEY", "MISSING_KEY"]))).signals
    error = one(signals, "agent:failed")["error"]
    assert (error["code"], error["recoverable"]) == ("INIT_FAILED", False)
    assert error["message"].startswith("credential MISSING_KEY is missing: set the environment variable MISSING_KEY")
    assert hooked.ran == []
    assert "sk-present" not in str(signals)
    monkeypatch.setenv("MISSING_KEY", "sk-now-there")
    assert (await rig.run(hooked.app(credentials=["PRESENT_KEY", "MISSING_KEY"]))).state == {"out": "done"}


@pytest.mark.proves("LC-12")
@pytest.mark.parametrize("schema", [dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}])
async def test_task_that_does_not_match_its_schema_fails_init_before_any_hook(rig: Rig, schema: Any) -> None:
    app, ran = Heliograph("typed"), list[Any]()

    @app.agent(activate_on=START)
    async def lead(ctx: Context) -> list[Any]:
        results = await ctx.delegates([Delegation("worker", {"n": "many"}), Delegation("worker", {"n": 2})])
        return [result.status for result in results]

    @app.agent(on_request=True, task_schema=schema)
    def worker(ctx: Context) -> None:
        ran.append(ctx.task)

    signals = (await rig.run(app)).signals
    error = one(signals, "agent:failed")["error"]
    assert (error["code"], ran) == ("INIT_FAILED", [{"n": 2}])
    assert error["message"].startswith("the task of agent worker does not match its task_schema: n: ")
    outputs: Any = {signal.agent: signal.payload for signal in signals if signal.name == "agent:completed"}
    assert outputs["lead"]["output"] == ["failed", "success"]


async def test_turn_that_may_record_no_more_phases_fails_without_its_terminate_hook(rig: Rig) -> None:
    await rig.runtime.database.call("set_limits", rig.runtime.settings.project, {"waits_max": 1})
    hooked = Hooked()
    error = one((await rig.run(hooked.app())).signals, "agent:failed")["error"]
    assert error["code"] == "RESOURCE_EXHAUSTED"
    assert "the end of phase plan-1 was rejected" in error["message"]
    assert hooked.ran == ["init", "plan"]


# ── Halt ──


@pytest.mark.proves("LC-65", "CTL-39", "G-09")
@pytest.mark.parametrize("now", [False, True], ids=["graceful", "forced"])
@pytest.mark.parametrize("phase", ORDER[:-1])
async def test_graceful_halt_in_a_phase_runs_terminate_and_a_forced_one_does_not(
    rig: Rig, phase: str, now: bool
) -> None:
    begun = asyncio.Event()

    async def hang(_ctx: PhaseContext) -> None:
        begun.set()
        await asyncio.Event().wait()

    hooked = Hooked(**{phase: hang})
    app = hooked.app()
    run_id = await rig.start(app)
    async with rig.serving(app, lease_seconds=3600) as worker:
        await begun.wait()
        await rig.client.stop_turn((await rig.turn_of("worker")).turn_id, now=now, reason="no longer needed")
        signals = await rig.ended(run_id)
        await until(lambda: not worker._running)
    assert hooked.ran == [*ORDER[: ORDER.index(phase) + 1], *([] if now else ["terminate"])]
    assert names(signals).count("terminated") == (0 if now else 1)
    assert one(signals, "agent:failed")["outcome"] == "canceled"


@pytest.mark.proves("LC-52")
@pytest.mark.parametrize("now", [False, True], ids=["graceful", "forced"])
async def test_halt_during_terminate_keeps_the_decided_outcome_unless_it_is_forced(rig: Rig, now: bool) -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def terminate(_ctx: PhaseContext) -> None:
        begun.set()
        await may_end.wait()

    app = Hooked(terminate=terminate).app()
    run_id = await rig.start(app)
    async with rig.serving(app, lease_seconds=3600) as worker:
        await begun.wait()
        await rig.client.stop_turn((await rig.turn_of("worker")).turn_id, now=now)
        await until(lambda: now or any(r.owned.cancel_flag.reason for r in worker._running.values()))
        may_end.set()
        signals = await rig.ended(run_id)
        await until(lambda: not worker._running)
    assert (await rig.turn_of("worker")).outcome == ("canceled" if now else "success")
    assert ("agent:completed" in names(signals)) is not now


# ── Terminate ──


@pytest.mark.proves("LC-51")
@pytest.mark.parametrize("fails", [False, True], ids=["success", "failure"])
async def test_terminate_hook_stores_a_memory_after_each_outcome(rig: Rig, fails: bool) -> None:
    async def act(_ctx: PhaseContext) -> None:
        if fails:
            raise ValueError("no ink")

    async def terminate(ctx: PhaseContext) -> None:
        await ctx.remember(f"the turn ended as {ctx.outcome}", iteration=ctx.iteration)

    await rig.run(Hooked(act=act, terminate=terminate).app())
    [hit] = await rig.runtime.ledger.recall("turn ended", "worker", 5)
    assert hit["text"] == f"the turn ended as {'failed' if fails else 'success'}"


@pytest.mark.proves("LC-50")
async def test_output_of_the_terminate_hook_replaces_that_of_act(rig: Rig) -> None:
    async def terminate(ctx: PhaseContext) -> str:
        return f"{ctx.output}, and filed"

    assert (await rig.run(Hooked(terminate=terminate).app())).state == {"out": "done, and filed"}


@pytest.mark.proves("LC-54", "LC-93", "LC-52")
@pytest.mark.parametrize("ignores", [False, True], ids=["cancelled", "ignores its cancellation"])
async def test_terminate_hook_that_is_too_slow_is_cancelled_and_then_abandoned(
    rig: Rig, ignores: bool, caplog: pytest.LogCaptureFixture
) -> None:
    did, end = list[str](), asyncio.Event()

    async def terminate(_ctx: PhaseContext) -> None:
        try:
            await end.wait()
        except asyncio.CancelledError:
            did.append("cancelled")
            if not ignores:
                raise
            await end.wait()

    assert (Lifecycle().terminate_timeout_seconds, Lifecycle().terminate_force_seconds) == (15, 30)
    lifecycle = Lifecycle(terminate_timeout_seconds=0.1, terminate_force_seconds=0.5)
    result = await rig.run(Hooked(terminate=terminate).app(lifecycle=lifecycle))
    assert did[0] == "cancelled"
    why = "it ignored its cancellation" if ignores else "took longer than 0.1 s and was cancelled"
    assert why in caplog.text
    assert (result.state, result.outcome) == ({"out": "done"}, "success")
    end.set()


async def test_terminate_hook_that_raises_is_logged_and_changes_nothing(rig: Rig, caplog: Any) -> None:
    async def terminate(_ctx: PhaseContext) -> None:
        raise OSError("the disk is gone")

    assert (await rig.run(Hooked(terminate=terminate).app())).state == {"out": "done"}
    assert "the terminate hook of" in caplog.text


# ── Costs ──


@pytest.mark.parametrize(
    ("phases", "writes"),
    [([], ["finish"]), (["plan"], ["record_call"] * 2 + ["finish"]), (ORDER, ["record_call"] * 4 + ["finish"])],
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
