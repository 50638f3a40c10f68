"""The times of fallbacks and circuit breakers: a timeout, and the time until a breaker admits a call."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from heliograph import Context, Heliograph, Step
from heliograph.errors import CircuitOpen, ToolFailed, ToolTimedOut
from tests.runtime.kit import START, Rig, one
from tests.runtime.test_circuit_breakers import ONCE, states


@pytest.mark.proves("CB-06")
async def test_fallback_has_the_timeout_of_its_call(rig: Rig) -> None:
    app = Heliograph("hanging")

    async def hang(_error: Any) -> None:
        await asyncio.Event().wait()

    @app.agent(activate_on=START, updates="out")
    async def work(ctx: Context) -> Any:
        codes = list[Any]()
        for _ in range(2):
            try:
                await ctx.step(
                    Step("charge", effect="idempotent", timeout=0.05, circuit_breaker=ONCE, fallback=hang), hang, 1
                )
            except ToolTimedOut as error:
                codes.append([error.code, error.call_id])
        return codes

    result = await rig.run(app)
    assert result.state["out"] == [["TOOL_TIMEOUT", "c1"], ["TOOL_TIMEOUT", "c2"]]
    assert await states(rig) == {("tool_call", "charge"): "open"}


@pytest.mark.proves("CB-06", "K20")
async def test_time_until_a_breaker_admits_a_call_does_not_depend_on_the_clock_of_the_worker(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, now = Heliograph("skewed"), rig.runtime.world.now
    monkeypatch.setattr(rig.runtime.world, "now", lambda: now() + timedelta(minutes=10))

    @app.agent(activate_on=START, updates="out")
    async def work(ctx: Context) -> Any:
        found = list[float]()
        for _ in range(2):
            try:
                await ctx.step(Step("charge", circuit_breaker=ONCE), lambda: 1 / 0)
            except CircuitOpen as error:
                found.append(error.details["retry_after_ms"])
            except ToolFailed:
                pass
        with pytest.raises(ToolTimedOut):
            await ctx.call("charge", timeout=0.05, circuit_breaker={**ONCE, "enabled": False})
        try:
            await ctx.call("charge", circuit_breaker=ONCE)
        except CircuitOpen as error:
            found.append(error.details["retry_after_ms"])
        return found

    run_id = await rig.start(app)
    async with rig.serving(app):
        out = one(await rig.ended(run_id), "workflow:end")["state"]["out"]
    assert len(out) == 2
    assert all(50_000 < each <= 60_000 for each in out)
