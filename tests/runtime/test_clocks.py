"""Which clock bounds what: running time by the agent's timeout, a wait by its deadline, the whole turn by its time to live."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from heliograph import Context, Heliograph
from heliograph.errors import ToolTimedOut
from tests.runtime.kit import START, Rig, one, until

TIMEOUT = 1.0


def waiting(*, then_hangs: bool = False, call_timeout: float | None = 3600, **options: Any) -> Heliograph:
    """An agent that calls a tool, and then answers, or hangs."""
    app = Heliograph("waits")

    @app.agent(activate_on=START, updates="seen", **options)
    async def worker(ctx: Context) -> Any:
        try:
            reply = await ctx.call("slow", timeout=call_timeout)
        except ToolTimedOut as error:
            return error.code
        if then_hangs:
            await asyncio.Event().wait()
        return await ctx.step("note", lambda: reply)  # takes its time: a clock that ran out would show

    return app


async def ended_after_a_long_wait(rig: Rig, app: Heliograph) -> Any:
    """The log of a run whose turn was suspended for longer than its agent may run."""
    run_id = await rig.start(app)
    async with rig.serving(app):
        (command,) = await rig.taken("slow")
        waited = f"select 1 from heliograph.wait_overview where run_id = $1 and now() > opened_at + interval '{1.2 * TIMEOUT} s'"
        await until(lambda: _is_true(rig, waited, run_id))
        await command.report(result="there")
        return await rig.ended(run_id)


async def _is_true(rig: Rig, query: str, run_id: str) -> bool:
    return bool(await rig.fetch(query, run_id))


@pytest.mark.more
@pytest.mark.proves("G-11")
async def test_time_suspended_does_not_count_toward_the_timeout_of_the_agent(rig: Rig) -> None:
    signals = await ended_after_a_long_wait(rig, waiting(timeout_seconds=TIMEOUT))
    assert one(signals, "workflow:end")["state"] == {"seen": "there"}
    turn = await rig.turn_of("worker")
    ran = [
        lease.ended_at - lease.started_at for lease in await rig.runtime.reader.leases(turn.turn_id) if lease.ended_at
    ]
    [wait] = await rig.fetch("select resolved_at - opened_at as span from heliograph.turn_waiting_tools where kind = 'tool' and agent_turn_id = $1",
                             turn.turn_id)  # fmt: skip
    assert wait["span"].total_seconds() > TIMEOUT
    assert len(ran) == 2  # before the wait and after it


@pytest.mark.more
@pytest.mark.proves("G-11")
async def test_time_running_after_a_wait_is_bounded_by_the_timeout_of_the_agent(rig: Rig) -> None:
    signals = await ended_after_a_long_wait(rig, waiting(then_hangs=True, timeout_seconds=TIMEOUT))
    failed = one(signals, "agent:failed")
    assert (failed["outcome"], failed["error"]["code"]) == ("timeout", "TIMEOUT")
    assert failed["error"]["message"] == f"agent worker ran longer than {TIMEOUT:g} s"


@pytest.mark.proves("G-11")
async def test_time_suspended_is_bounded_by_the_deadline_of_the_wait(rig: Rig) -> None:
    app = waiting(call_timeout=0.05, timeout_seconds=3600)
    run_id = await rig.start(app)
    async with rig.serving(app):
        assert one(await rig.ended(run_id), "workflow:end")["state"] == {"seen": "TOOL_TIMEOUT"}
    turn = await rig.turn_of("worker")
    [wait] = await rig.fetch("select status, resolved_at >= deadline as late from heliograph.turn_waiting_tools where agent_turn_id = $1",
                             turn.turn_id)  # fmt: skip
    assert tuple(wait) == ("timeout", True)


@pytest.mark.more
@pytest.mark.proves("G-11")
async def test_time_suspended_is_bounded_by_the_time_to_live_of_the_turn(rig: Rig) -> None:
    app = waiting(call_timeout=None, timeout_seconds=3600, ttl_seconds=1)
    run_id = await rig.start(app)
    async with rig.serving(app):
        await rig.turn_of("worker", "suspended")
        failed = one(await rig.ended(run_id), "agent:failed")
    assert (failed["outcome"], failed["error"]["code"]) == ("timeout", "TIMEOUT")
    assert (await rig.turn_of("worker")).outcome == "timeout"
