"""The settings of `control_signals` that only an application has: the grace of its stops, and the heartbeats of its workers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from heliograph import Context, Heliograph
from heliograph.control.settings import HeartbeatSettings
from tests.rules.control_examples import SETTINGS
from tests.runtime.kit import START, Rig, one, until


class StubbornAgent:
    """An application whose agent does not react to a stop until it is released."""

    def __init__(self, **options: Any) -> None:
        self.begun, self.released = asyncio.Event(), asyncio.Event()
        self.app = Heliograph("stubborn", **options)

        @self.app.agent(activate_on=START)
        async def worker(ctx: Context) -> None:
            self.begun.set()
            while not self.released.is_set():
                try:
                    await self.released.wait()
                except asyncio.CancelledError:
                    continue


@pytest.mark.proves("CTL-73", "G-08")
async def test_stop_by_an_application_has_the_grace_of_its_settings(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELIOGRAPH_DATABASE_URL", rig.url)
    monkeypatch.setenv("HELIOGRAPH_PROJECT", rig.runtime.settings.project)
    agent = StubbornAgent(control_signals={"halt": {"force_after_seconds": 0.1}})
    run_id = await rig.start(agent.app)
    async with rig.serving(agent.app):
        await agent.begun.wait()
        turn = await rig.turn_of("worker")
        assert (await agent.app.stop(turn=turn.turn_id)).outcome == "stopping"
        try:
            async with asyncio.timeout(5):  # the default grace is longer
                signals = await rig.ended(run_id)
        finally:
            agent.released.set()
    assert one(signals, "agent:failed")["outcome"] == "canceled"


@pytest.mark.proves("CTL-74")
async def test_worker_has_the_heartbeats_of_its_applications_unless_it_has_its_own(rig: Rig) -> None:
    app = Heliograph("beating", control_signals={"heartbeat": {"interval_seconds": 12, "missed_threshold": 7}})
    app.agent(name="one", on_request=True)(print)
    for own, expected in ((None, (12, 7)), (HeartbeatSettings(interval_seconds=20), (20, 7))):
        async with rig.serving(app, heartbeat=own):

            async def is_registered() -> bool:
                return len(await rig.client.workers()) == 1

            await until(is_registered)
            [row] = await rig.client.workers()
        assert (row.interval_seconds, row.missed_threshold) == expected


@pytest.mark.proves("CTL-71", "CTL-72", "CTL-73", "CTL-74")
async def test_application_with_the_example_of_the_specification_works(rig: Rig) -> None:
    app = Heliograph("example", control_signals=SETTINGS["configuration"])

    @app.agent(activate_on=START, updates="out")
    async def lead(ctx: Context) -> Any:
        return await ctx.delegate("writer", "ink")

    @app.agent(on_request=True)
    def writer(ctx: Context) -> str:
        return f"all about {ctx.task}"

    result = await rig.run(app)
    assert result.state["out"] == "all about ink"
    [sent] = [each.payload for each in result.signals if each.name == "delegation"]
    assert isinstance(sent, dict)
    assert sent["timeout_seconds"] == 300
