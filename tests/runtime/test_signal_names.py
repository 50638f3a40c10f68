"""The names for which commits ring are those that the log has afterwards, also of signals that the kernel logs itself."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from heliograph import Context, Heliograph
from heliograph.world import signal_bells
from heliograph.world.bells import Bells
from tests.runtime.kit import START, Rig


@pytest.mark.more  # its turns wait for each other
async def test_commits_ring_for_each_name_that_a_run_logs(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rung: set[str] = set()
    called = Bells.called

    def counted(self: Bells, function: str, arguments: tuple[Any, ...], answer: Any) -> None:
        rung.update(signal_bells.names_of(function, arguments, answer))
        called(self, function, arguments, answer)

    monkeypatch.setattr(Bells, "called", counted)
    app, is_waiting = Heliograph("asks"), asyncio.Event()

    @app.agent(activate_on=START, updates="seen", emits=["asked:clerk"])
    async def parent(ctx: Context) -> Any:
        ctx.emit("asked:clerk", {})
        return await ctx.delegate("clerk", "greet")

    @app.agent(on_request=True)
    async def clerk(ctx: Context) -> Any:
        return await ctx.call("door", trusted=True)

    @app.agent(activate_on=["agent:completed"], when=lambda state: "seen" in state)
    async def endless(ctx: Context) -> None:
        is_waiting.set()
        await asyncio.Event().wait()

    run_id = await rig.start(app)
    async with rig.serving(app):
        [command] = await rig.taken("door")
        await command.report(result="open")
        async with asyncio.timeout(30):
            await is_waiting.wait()
        await rig.client.stop_run(run_id, now=True)
        logged = {signal.name for signal in await rig.ended(run_id)}
    assert {"tool:result", "delegation_response", "halt", "agent:failed", "asked:clerk"} <= logged
    assert logged <= rung
