"""Halts of turns that wait, and whose agents have hooks: a worker runs the terminate hook within the grace."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from heliograph import Heliograph, Tool
from heliograph.models import ScriptedModel
from heliograph.phases import PhaseContext
from heliograph.ports import ModelReply
from tests.runtime.hooks_kit import ORDER, Hooked
from tests.runtime.kit import START, Rig, lost, names, one, until
from tests.runtime.loop_kit import call


async def wait(ctx: PhaseContext) -> None:
    await ctx.call("ask")


@pytest.mark.more
@pytest.mark.proves("LC-65", "LC-52", "CTL-39")
@pytest.mark.parametrize("now", [False, True], ids=["graceful", "forced"])
@pytest.mark.parametrize("phase", ORDER)
async def test_graceful_halt_of_a_turn_that_waits_inside_a_hook_runs_terminate(rig: Rig, phase: str, now: bool) -> None:
    outcomes = list[str | None]()

    async def note(ctx: PhaseContext) -> None:
        outcomes.append(ctx.outcome)
        if phase == "terminate":
            await wait(ctx)

    hooked = Hooked(**{phase: wait} | {"terminate": note})
    app = hooked.app()
    run_id = await rig.start(app)
    async with rig.serving(app) as worker:
        (command,) = await rig.taken("ask")
        turn = await rig.turn_of("worker", "suspended")
        await rig.client.stop_turn(turn.turn_id, now=now, reason="no longer needed")
        signals = await rig.ended(run_id)
        await until(lambda: not worker._running)
        assert await command.report(result="too late") == "turn_done"
    is_decided = phase == "terminate" and not now  # a halt does not change an outcome that is decided
    assert hooked.ran == [*ORDER[: ORDER.index(phase) + 1], *([] if now else ["terminate"])]
    assert outcomes[-1:] == (["success"] if phase == "terminate" else [] if now else ["canceled"])
    assert names(signals).count("terminated") == (0 if now else 1)
    assert names(signals).count("halt") == 1
    if not is_decided:
        assert one(signals, "agent:failed")["outcome"] == "canceled"
    assert (await rig.turn_of("worker")).outcome == ("success" if is_decided else "canceled")
    assert {wait.state for wait in await rig.runtime.reader.waits(turn.turn_id)} <= {"resolved", "closed"}


@pytest.mark.proves("LC-65", "CTL-39")
async def test_graceful_halt_of_a_deferred_turn_runs_terminate_at_once(rig: Rig) -> None:
    async def act(ctx: PhaseContext) -> None:
        ctx.defer(seconds=3600, reason="the shop is closed")

    hooked = Hooked(act=act)
    app = hooked.app()
    run_id = await rig.start(app)
    async with rig.serving(app):
        turn = await rig.turn_of("worker", "dispatched")
        await until(lambda: hooked.ran[-1:] == ["act"])
        await rig.client.stop_turn(turn.turn_id)
        signals = await rig.ended(run_id)
    assert hooked.ran == ["init", "plan", "act", "terminate"]
    assert names(signals).count("terminated") == 1
    assert one(signals, "agent:failed")["outcome"] == "canceled"


@pytest.mark.proves("LC-65", "CTL-39")
async def test_graceful_halt_of_a_run_runs_the_terminate_hooks_of_its_waiting_turns(rig: Rig) -> None:
    hooked = Hooked(act=wait)
    app = hooked.app()
    run_id = await rig.start(app)
    async with rig.serving(app):
        await rig.turn_of("worker", "suspended")
        await rig.client.stop_run(run_id)
        signals = await rig.ended(run_id)
    assert hooked.ran[-1] == "terminate"
    assert names(signals).count("terminated") == 1
    assert (await rig.runtime.reader.run(run_id)).outcome == "canceled"


@pytest.mark.proves("G-08", "LC-65")
async def test_waiting_turn_that_no_worker_claims_ends_after_the_grace(rig: Rig) -> None:
    hooked = Hooked(act=wait)
    app = hooked.app()
    await rig.start(app)
    async with rig.serving(app):
        turn = await rig.turn_of("worker", "suspended")
    assert (await rig.client.stop_turn(turn.turn_id, grace_seconds=0.2)).outcome == "stopping"
    await asyncio.sleep(0.3)
    assert (await rig.runtime.ledger.sweep("stops")).stopped == [turn.turn_id]
    assert hooked.ran[-1] == "act"
    assert (await rig.turn_of("worker")).outcome == "canceled"
    rig.ends_with_open_work = True


@pytest.mark.proves("LC-65", "LC-52")
async def test_worker_that_dies_with_a_halted_turn_has_a_successor_that_runs_terminate(rig: Rig) -> None:
    hooked = Hooked(act=wait)
    app = hooked.app()
    run_id = await rig.start(app)
    async with rig.serving(app):
        turn = await rig.turn_of("worker", "suspended")
    await rig.client.stop_turn(turn.turn_id, grace_seconds=60, reason="no longer needed")
    (claimed,) = await rig.claimed_by_the_dead(app)
    assert claimed.stop is not None
    assert claimed.stop.reason == "no longer needed"
    async with rig.serving(app):
        signals = await rig.ended(run_id)
    assert hooked.ran == ["init", "plan", "act", "terminate"]
    assert names(signals).count("terminated") == 1
    assert one(signals, "agent:failed")["outcome"] == "canceled"


@pytest.mark.proves("LC-65")
async def test_turn_that_suspends_before_its_worker_learns_of_the_halt_runs_terminate(rig: Rig) -> None:
    async def stop_and_wait(ctx: PhaseContext) -> None:
        [answer] = await rig.runtime.ledger.stop([{"turn_id": ctx.turn_id, "mode": "graceful"}])
        assert answer.outcome == "stopping"
        await wait(ctx)

    hooked = Hooked(act=stop_and_wait)
    app = hooked.app()
    run_id = await rig.start(app)
    async with rig.serving(app, lease_seconds=3600):
        signals = await rig.ended(run_id)
    assert hooked.ran == ["init", "plan", "act", "terminate"]
    assert names(signals).count("terminated") == 1
    assert (await rig.turn_of("worker")).outcome == "canceled"


class HangingTools:
    """A tool server that lists its tools once, and then never answers. is_asked: whether it was asked again."""

    def __init__(self) -> None:
        self.is_asked = False

    @asynccontextmanager
    async def open_tools(self) -> AsyncIterator[HangingTools]:
        yield self

    def __iter__(self) -> Iterator[Tool]:
        return iter(())

    async def refresh(self) -> None:
        self.is_asked = True
        await asyncio.Event().wait()


@pytest.mark.proves("LC-65", "CTL-39")
async def test_tool_server_that_hangs_does_not_use_up_the_grace_of_a_halt(rig: Rig) -> None:
    tools, outcomes = HangingTools(), list[str | None]()
    model = ScriptedModel([ModelReply("", tool_calls=(call("ask_human", {"question": "Who?"}),))])
    app = Heliograph("tools")

    async def terminate(ctx: PhaseContext) -> None:
        outcomes.append(ctx.outcome)

    app.prompt_agent(
        "worker", "Work.", model=model, activate_on=START, tools=[tools], asks_human=True, terminate=terminate
    )
    run_id = await rig.start(app)
    async with rig.serving(app):
        turn = await rig.turn_of("worker", "suspended")
        await rig.client.stop_turn(turn.turn_id, grace_seconds=2)
        signals = await rig.ended(run_id)
    assert (outcomes, tools.is_asked) == (["canceled"], False)
    assert names(signals).count("terminated") == 1
    assert (await rig.turn_of("worker")).outcome == "canceled"


@pytest.mark.proves("LC-65", "LC-52", "CTL-39")
@pytest.mark.parametrize("how", ["halted, then lost", "lost, then halted", "released, then halted"])
async def test_turn_that_loses_its_first_worker_before_it_has_waited_runs_terminate(rig: Rig, how: str) -> None:
    begun = asyncio.Event()

    async def hang(_ctx: PhaseContext) -> None:
        begun.set()
        await asyncio.Event().wait()

    hooked = Hooked(act=hang)
    app = hooked.app()
    if how == "released, then halted":
        run_id = await rig.start(app)
        async with rig.serving(app, grace_seconds=0):
            await begun.wait()
    else:
        run_id = await lost(rig, app, begun)
    if how == "lost, then halted":
        await until(lambda: _is_recovered(rig))
    turn = await rig.turn_of("worker", "running" if how == "halted, then lost" else "dispatched")
    assert (await rig.client.stop_turn(turn.turn_id, grace_seconds=60)).outcome == "stopping"
    async with rig.serving(app):
        signals = await rig.ended(run_id)
    assert hooked.ran == ["init", "plan", "act", "terminate"]
    assert names(signals).count("terminated") == 1
    assert one(signals, "agent:failed")["outcome"] == "canceled"


async def _is_recovered(rig: Rig) -> bool:
    return bool((await rig.runtime.ledger.sweep("leases")).recovered)


async def test_turn_that_is_halted_before_its_first_hook_has_ended_has_nothing_to_undo(rig: Rig) -> None:
    begun = asyncio.Event()

    async def hang(_ctx: PhaseContext) -> None:
        begun.set()
        await asyncio.Event().wait()

    hooked = Hooked(init=hang)
    app = hooked.app()
    run_id = await lost(rig, app, begun)
    await until(lambda: _is_recovered(rig))
    turn = await rig.turn_of("worker", "dispatched")
    assert (await rig.client.stop_turn(turn.turn_id)).outcome == "stopped"
    async with rig.serving(app):
        await rig.ended(run_id)
    assert hooked.ran == ["init"]


async def test_waiting_turn_without_a_terminate_hook_ends_at_once(rig: Rig) -> None:
    app = Heliograph("plain")

    @app.agent(activate_on=START)
    async def worker(ctx: PhaseContext) -> None:
        await wait(ctx)

    run_id = await rig.start(app)
    async with rig.serving(app):
        turn = await rig.turn_of("worker", "suspended")
        assert (await rig.client.stop_turn(turn.turn_id)).outcome == "stopped"
        await rig.ended(run_id)
