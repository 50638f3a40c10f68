"""What the init phase checks and sets up: credentials, the task, the logger and the observers."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from heliograph import Context, Delegation, Heliograph
from heliograph.phases import PhaseContext
from tests.runtime.hooks_kit import ORDER, Hooked
from tests.runtime.kit import START, Rig, one


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


@pytest.mark.more
@pytest.mark.proves("LC-13")
async def test_hook_has_a_logger_of_its_turn_and_observers_before_it_begins(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    observed = asyncio.Event()

    async def init(ctx: PhaseContext) -> None:
        await observed.wait()  # the event of the phase was sent before the hook
        ctx.logger.info("before the wait", extra={"own": 1})
        await ctx.pause(0.01)
        ctx.logger.info("after the wait")

    app = Hooked(init=init).app()

    @app.on_lifecycle("phase_started")
    async def on_start(phase: str) -> None:
        if phase == "init":
            observed.set()

    caplog.set_level(logging.INFO, "heliograph.agents")
    result = await rig.run(app)
    turn = await rig.turn_of("worker")
    records = [each for each in caplog.records if each.name == "heliograph.agents.worker"]
    assert [each.message for each in records] == ["before the wait", "after the wait"]  # init ran twice
    for each in records:
        fields = {"run_id": result.run_id, "turn_id": turn.turn_id, "agent": "worker",
                  "agent_id": f"{result.run_id}/worker", "phase": "init", "attempt": 1}  # fmt: skip
        assert fields.items() <= vars(each).items()
    assert vars(records[0])["own"] == 1
