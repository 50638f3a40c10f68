"""Hooks that fail or run too long: the code of the phase, the policies, and the repetitions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from heliograph.errors import AgentFailed, ToolFailed
from heliograph.phases import IterationNeeded, Lifecycle, PhaseContext
from tests.runtime.hooks_kit import ORDER, Hooked, of_phases
from tests.runtime.kit import Rig, lost, one


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
    assert (error["error_code"], error["message"], error["details"]) == (
        code,
        "ValueError: no ink",
        {"phase": phase, "scope": "turn"},
    )
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


@pytest.mark.more
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
@pytest.mark.more  # it waits for deferrals
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
@pytest.mark.more  # it waits for deferrals
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
@pytest.mark.more  # it waits for deferrals
async def test_error_policy_of_a_timeout_repeats_the_phase(rig: Rig, soon: None) -> None:
    async def late(ctx: PhaseContext) -> None:
        if not ctx.deferrals:
            await asyncio.Event().wait()

    lifecycle = Lifecycle(plan_timeout_seconds=0.1, error_retries={"TIMEOUT": 1})
    hooked = Hooked(plan=late)
    assert (await rig.run(hooked.app(lifecycle=lifecycle))).state == {"out": "done"}
    assert hooked.ran == ["init", "plan", "plan", "act", "reflect", "terminate"]


@pytest.mark.proves("LC-106", "LC-81")
async def test_error_policy_without_retries_ends_a_failed_init_at_once(rig: Rig) -> None:
    async def fail(_ctx: PhaseContext) -> None:
        raise OSError("no route")

    hooked = Hooked(init=fail)
    code = one((await rig.run(hooked.app(lifecycle=Lifecycle(error_retries={"INIT_FAILED": 0})))).signals, "error")[
        "error_code"
    ]
    assert (hooked.ran, code) == (["init", "terminate"], "INIT_FAILED")  # although init_retries is 3


@pytest.mark.proves("LC-106", "LC-92")
@pytest.mark.parametrize(("is_recoverable", "runs"), [(True, 2), (False, 1)])
@pytest.mark.more  # it waits for deferrals
async def test_error_policy_decides_whether_a_failed_init_may_be_repeated(
    rig: Rig, soon: None, is_recoverable: bool, runs: int
) -> None:
    async def fail(_ctx: PhaseContext) -> None:
        raise ToolFailed("busy", error={"recoverable": not is_recoverable})

    hooked = Hooked(init=fail)
    lifecycle = Lifecycle(init_retries=1, error_recoverable={"INIT_FAILED": is_recoverable})
    error = one((await rig.run(hooked.app(lifecycle=lifecycle))).signals, "error")
    assert (hooked.ran, error["recoverable"]) == (["init"] * runs + ["terminate"], is_recoverable)


@pytest.mark.proves("LC-106")
@pytest.mark.parametrize("has_hooks", [True, False])
@pytest.mark.parametrize("is_recoverable", [True, False])
async def test_error_signal_carries_the_recoverable_that_the_policy_of_its_code_has(
    rig: Rig, is_recoverable: bool, has_hooks: bool
) -> None:
    async def fail(_ctx: PhaseContext) -> None:
        raise ToolFailed("busy", error={"recoverable": not is_recoverable})

    hooked = Hooked(ORDER if has_hooks else ["act"], act=fail)
    signals = (await rig.run(hooked.app(lifecycle=Lifecycle(error_recoverable={"TOOL_ERROR": is_recoverable})))).signals
    assert one(signals, "error")["recoverable"] is is_recoverable
    assert one(signals, "agent:failed")["error"]["recoverable"] is is_recoverable


@pytest.mark.proves("LC-106")
async def test_error_policy_also_applies_to_an_unmet_goal(rig: Rig) -> None:
    async def reflect(_ctx: PhaseContext) -> IterationNeeded:
        return IterationNeeded("no sources")

    lifecycle = Lifecycle(max_iterations=1, error_recoverable={"MAX_ITERATIONS": True})
    error = one((await rig.run(Hooked(reflect=reflect).app(lifecycle=lifecycle))).signals, "error")
    assert (error["error_code"], error["recoverable"]) == ("MAX_ITERATIONS", True)


@pytest.mark.proves("LC-80", "LC-106")
@pytest.mark.more  # it waits for deferrals
async def test_error_policy_repeats_the_function_of_an_agent_without_hooks(rig: Rig, soon: None) -> None:
    async def act(ctx: PhaseContext) -> None:
        if ctx.deferrals == 0:
            raise ToolFailed("the line is busy", code="NETWORK_ERROR")
        if ctx.deferrals == 1:
            await asyncio.Event().wait()

    hooked = Hooked(["act"], act=act)
    lifecycle = Lifecycle(error_retries={"NETWORK_ERROR": 2, "TIMEOUT": 2})
    result = await rig.run(hooked.app(lifecycle=lifecycle, timeout_seconds=0.1))
    assert (result.state, hooked.ran) == ({"out": "done"}, ["act", "act", "act"])


@pytest.mark.proves("LC-104")
async def test_rejected_credential_fails_init_once(rig: Rig) -> None:
    async def validate_credentials(_ctx: PhaseContext) -> None:
        raise AgentFailed("the archive rejected the credential ARCHIVE_KEY", code="AUTH_ERROR")

    hooked = Hooked(init=validate_credentials)
    error = one((await rig.run(hooked.app())).signals, "error")
    assert hooked.ran == ["init", "terminate"]
    assert (error["error_code"], error["recoverable"]) == ("INIT_FAILED", False)
    assert (error["message"], error["details"]["original_code"]) == (
        "the archive rejected the credential ARCHIVE_KEY", "AUTH_ERROR")  # fmt: skip


async def test_turn_that_may_record_no_more_phases_fails_without_its_terminate_hook(rig: Rig) -> None:
    await rig.runtime.database.call("set_limits", rig.runtime.settings.project, {"waits_max": 1})
    hooked = Hooked()
    error = one((await rig.run(hooked.app())).signals, "agent:failed")["error"]
    assert error["code"] == "RESOURCE_EXHAUSTED"
    assert "the end of phase plan-1 was rejected" in error["message"]
    assert hooked.ran == ["init", "plan"]
