"""Calls in tasks that are cancelled before they start: nothing is left behind."""

from __future__ import annotations

import asyncio
import gc

from heliograph import Call, Context, Delegation, Heliograph
from heliograph.testing import Simulation, virtual_time
from tests.runtime.kit import START


def price() -> float:
    return 40.0


@virtual_time
async def test_typed_call_whose_task_is_cancelled_before_it_starts_leaves_no_coroutine(sim: Simulation) -> None:
    """Python warns of a coroutine that it drops and that was never awaited, and such a warning fails a test."""
    app = Heliograph("cancelled")

    @app.agent(on_request=True)
    def clerk(_ctx: Context) -> int:
        return 1

    @app.agent(activate_on=START)
    async def shop(ctx: Context) -> None:
        tasks = [
            asyncio.create_task(ctx.step("price", price)),
            asyncio.create_task(ctx.call("ship", result_schema=int)),
            asyncio.create_task(ctx.calls([Call("ship", result_schema=int)])),
            asyncio.create_task(ctx.delegates([Delegation(clerk)])),
            asyncio.create_task(ctx.map(clerk, [1, 2])),
        ]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert all(task.cancelled() for task in tasks)

    assert (await sim.serve(app).run({})).outcome == "success"
    gc.collect()
