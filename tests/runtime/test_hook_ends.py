"""The end of an agent with hooks: a halt in each phase, and the terminate hook."""

from __future__ import annotations

import asyncio

import pytest

from heliograph.phases import Lifecycle, PhaseContext
from tests.runtime.hooks_kit import ORDER, Hooked
from tests.runtime.kit import Rig, names, one, until


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


@pytest.mark.proves("LC-52")
@pytest.mark.parametrize(
    "error", [OSError("the disk is gone"), SystemExit(3), KeyboardInterrupt()], ids=["error", "exit", "interrupt"]
)
async def test_terminate_hook_that_raises_is_logged_and_changes_nothing(
    rig: Rig, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    async def terminate(_ctx: PhaseContext) -> None:
        raise error

    assert (await rig.run(Hooked(terminate=terminate).app())).state == {"out": "done"}
    assert f"failed: {type(error).__name__}" in caplog.text
