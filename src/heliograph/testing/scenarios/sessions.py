"""Sessions: clients send messages, and close the session while replies are being written, while they wake others, or later."""

from __future__ import annotations

from heliograph.app import Heliograph
from heliograph.errors import DelegationFailed
from heliograph.execution.context import Context
from heliograph.ledger.client import Ledger
from heliograph.reactive.run_memory import OPEN, SESSION
from heliograph.reactive.workflow import Workflow
from heliograph.testing.scenarios.building_blocks import Cast
from heliograph.testing.scenarios.clients import insist, message_item, start_item
from heliograph.testing.scenarios.workload import FIRST_STATE
from heliograph.testing.simulator.world import SimWorld


def parlor(cast: Cast) -> Heliograph:
    """Agents that answer messages, one with a child; another one wakes with each reply, and one more with its output. Rules: K24, K25, K26."""
    app = Heliograph("parlor", reducers={"total": lambda old, new: old + new, "received": lambda old, new: [*old, new]})

    @app.agent(on_request=True, emits=["said"], updates="total", max_attempts=4)
    async def send(context: Context) -> int:
        done = await cast.work(context)
        cast.may_fail(context, 0.1)
        return done

    @app.agent(on_request=True, emits=["said"], updates="total", max_attempts=4)
    async def hand(context: Context) -> int:
        try:
            return int(await context.delegate("helper", timeout=cast.pick(context, "timeout", (2.0, 20.0, None))))
        except DelegationFailed:
            return 1

    @app.agent(on_request=True)
    async def helper(context: Context) -> int:
        cast.may_fail(context, 0.1)
        return await cast.work(context)

    @app.agent(activate_on=["said"], updates="total", max_attempts=4)
    async def note(context: Context) -> int:
        return await cast.work(context)

    @app.agent(activate_on=["agent:completed"], when=lambda _, signal: signal.agent == "note", updates="received")
    async def keep(context: Context) -> str:
        await cast.work(context)
        cast.may_fail(context, 0.1)
        return str(context.signal.payload["output"])

    @app.agent(activate_on=["workflow:terminating"], updates="summary")
    async def summarize(context: Context) -> int:
        return await cast.work(context)

    return app


async def converse(world: SimWorld, ledger: Ledger, workflow: Workflow, messages: int) -> None:
    """Act as one client: open a session, send messages, some twice, and stop or close it; then send one more, and close it again."""
    plan, run_id = world.stage.plan, world.new_id("run")
    site = f"client/{workflow.name}"
    await world.sleep(plan.between(site, 0.0, 3.0))
    await insist(world, lambda: ledger.start_run(start_item(world, workflow, run_id, FIRST_STATE, {SESSION: OPEN})))
    for n in range(plan.index(f"{site}/messages", messages + 2)):
        message = message_item(world, workflow, run_id, n)
        for _ in range(2 if plan.draw(f"{site}/repeat") < 0.2 else 1):
            await insist(world, lambda message=message: ledger.enqueue([message]))  # type: ignore[misc]
        if plan.draw(f"{site}/burst") < 0.5:
            await world.sleep(plan.between(site, 0.0, 4.0))
    if plan.draw(f"{site}/late") < 0.5:
        await world.sleep(plan.between(site, 0.0, 12.0))
    if plan.draw(f"{site}/stopped") < 0.2:
        stop = {"run_id": run_id, "mode": "graceful", "grace_seconds": 5, "reason": "enough"}
        await insist(world, lambda: ledger.stop_runs([stop]))
    for _ in range(2 if plan.draw(f"{site}/again") < 0.5 else 1):
        await insist(world, lambda: ledger.stop_runs([{"run_id": run_id, "mode": "close"}]))
        await insist(world, lambda: ledger.enqueue([message_item(world, workflow, run_id, -1)]))
