"""The phases of a turn in the log of its run: start, decision, end, and their order."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from heliograph import Context, Defer, Heliograph
from heliograph.errors import HarnessError, ToolFailed
from heliograph.execution.agent_run import act
from heliograph.execution.owned_turn import OwnedTurn
from heliograph.models import ScriptedModel
from heliograph.turn.events import Hydrated
from tests.runtime.kit import START, Rig, kill, names, one, until
from tests.runtime.loop_kit import agent, call

PHASES = ["ready", "plan_ready", "action_complete", "reflection_complete", "terminated"]
TOO_LARGE = "x" * 70_000


def search(query: str) -> str:
    """Search."""
    return query.upper()


def of_phases(signals: list[Any]) -> list[str]:
    return [name for name in names(signals) if name in (*PHASES, "error", "halt")]


@pytest.mark.proves("LC-15", "CTL-55", "CTL-56")
async def test_ready_lists_the_capabilities_and_the_version_of_the_agent(rig: Rig) -> None:
    app = Heliograph("able")
    app.prompt_agent("lead", "Lead.", model=ScriptedModel(["done"]), activate_on=START, tools=[search], agents=["clerk"],
                     asks_human=True, emits=["lead:done"], version="2.1")  # fmt: skip
    app.agent(name="clerk", activate_on=["lead:done"], version="7")(lambda _ctx: None)
    result = await rig.run(app)
    ready: dict[Any, Any] = {signal.agent: signal.payload for signal in result.signals if signal.name == "ready"}
    assert [payload.pop("metadata")["tools_loaded"] for payload in ready.values()] == [1, 0]
    assert ready == {
        "lead": {"capabilities": ["search", "delegate_to_clerk", "ask_human", "lead:done"], "version": "2.1"},
        "clerk": {"capabilities": [], "version": "7"},
    }


@pytest.mark.proves("LC-43", "LC-55")
async def test_successful_turn_decides_that_its_goal_is_achieved_and_terminates_with_its_output(rig: Rig) -> None:
    app = Heliograph("succeeds")
    app.agent(name="worker", activate_on=START, updates="out")(lambda _ctx: {"n": 1})
    signals = (await rig.run(app)).signals
    assert one(signals, "reflection_complete") == {"decision": "goal_achieved"}
    assert one(signals, "terminated") == {"status": "success", "outputs": [{"n": 1}]}


@pytest.mark.proves("LC-43", "LC-55")
async def test_turn_at_its_limit_decides_that_more_is_needed_and_terminates_as_partial(rig: Rig) -> None:
    first = call("search", {"query": "a"})
    app = agent(ScriptedModel([[first], "never"]), [search], budget={"model_calls": 1})
    signals = (await rig.run(app)).signals
    decision, terminated = one(signals, "reflection_complete"), one(signals, "terminated")
    assert decision == {"decision": "iteration_needed", "reason": terminated["limit"]["message"]}
    assert "model_calls" in decision["reason"]
    assert terminated["status"] == "partial"
    assert of_phases(signals) == [*PHASES[:-1], "halt", PHASES[-1]]


@pytest.mark.parametrize(("output", "outputs"), [(None, []), (TOO_LARGE, [None])], ids=["nothing", "too large"])
async def test_outputs_are_empty_for_no_output_and_null_for_one_that_is_too_large(
    rig: Rig, output: Any, outputs: Any
) -> None:
    app = Heliograph("outputs")
    app.agent(name="worker", activate_on=START)(lambda _ctx: output)
    assert one((await rig.run(app)).signals, "terminated") == {"status": "success", "outputs": outputs}


class Careful(Exception):
    pass


def failing(what: str) -> Heliograph:
    app = Heliograph("failing")
    if what == "model":
        refused = HarnessError("the key has expired", code="AUTH_ERROR", recoverable=True)
        app.prompt_agent("worker", "Work.", model=ScriptedModel([refused]), activate_on=START, retries=0)
        return app

    @app.agent(activate_on=START, timeout_seconds=0.05 if what == "late" else 60)
    async def worker(_ctx: Context) -> None:
        if what == "late":
            await asyncio.Event().wait()
        if what == "tool":
            raise ToolFailed("no index", code="NO_INDEX")
        raise Careful("no ink")

    return app


@pytest.mark.proves("CTL-45", "CTL-46", "CTL-47", "LC-55")
@pytest.mark.parametrize(
    ("what", "status", "error"),
    [
        ("own", "failed", ("ACTION_FAILED", "Careful: no ink", False)),
        ("tool", "failed", ("NO_INDEX", "no index", False)),
        ("late", "timeout", ("TIMEOUT", "agent worker ran longer than 0.05 s", False)),
        ("model", "failed", ("AUTH_ERROR", "the key has expired", True)),
    ],
)
async def test_failed_turn_logs_an_error_with_its_code_message_and_recoverable_flag(
    rig: Rig, what: str, status: str, error: tuple[str, str, bool]
) -> None:
    signals = (await rig.run(failing(what))).signals
    code, message, recoverable = error
    logged = one(signals, "error")
    assert (logged["error_code"], logged["message"], logged["recoverable"]) == error
    assert logged["details"] == {"phase": "act", "scope": "turn"}
    assert one(signals, "terminated") == {"status": status, "outputs": []}
    details = {"details": {"phase": "act", "scope": "turn"}} if code == "TIMEOUT" else {}
    failure = {"code": code, "message": message, "recoverable": recoverable, **details}
    assert one(signals, "agent:failed")["error"] == failure
    assert of_phases(signals) == ["ready", "plan_ready", "error", "terminated"]


@pytest.mark.proves("LC-66")
async def test_event_of_another_phase_is_rejected_and_not_logged(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    app = Heliograph("refuses")
    runs: list[int] = []

    async def out_of_order(owned: OwnedTurn, context: Context, journal: Any, agent_loop: Any) -> Any:
        runs.append(owned.claimed.epoch)
        if len(runs) == 1:
            return Hydrated(recoveries=0, may_run_again=True, is_run_over=False)  # init again, in the middle of act
        return await act(owned, context, journal, agent_loop)

    monkeypatch.setattr("heliograph.execution.runner.act", out_of_order)
    app.agent(name="worker", activate_on=START, updates="out")(lambda _ctx: "done")
    run_id = await rig.start(app)
    async with rig.serving(app):
        signals = await rig.ended(run_id)
    assert of_phases(signals) == PHASES  # the abandoned first attempt left no signal, and the second one emits all
    assert len(runs) == 2
    assert (await rig.turn_of("worker")).attempts == 1


@pytest.mark.proves("LC-66", "LC-02")
async def test_phases_follow_each_other_in_a_turn_that_defers_waits_and_loses_its_worker(rig: Rig) -> None:
    app = Heliograph("winding")
    begun = asyncio.Event()

    @app.agent(activate_on=START, updates="out")
    async def worker(ctx: Context) -> Any:
        if not ctx.deferrals:
            raise Defer("later", 0.01)
        await ctx.pause(0.01)
        reply = await ctx.call("ask")
        if ctx.attempt == 1:
            begun.set()
            await asyncio.Event().wait()
        return reply

    run_id = await rig.start(app)
    lost = rig.runtime.worker(app.workflow, lease_seconds=0.2)
    lost.watchdog.interval_seconds = 0.05
    working = asyncio.create_task(lost.run())
    (command,) = await rig.taken("ask")
    await command.report(result="there")
    await until(begun.is_set)
    await kill(lost, working)
    async with rig.serving(app):
        signals = await rig.ended(run_id)
    assert of_phases(signals) == PHASES
    assert one(signals, "terminated")["outputs"] == ["there"]
