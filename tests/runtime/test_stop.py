"""Stops: of a turn that runs, waits or queues, of a whole run; with time to wind up, and at once."""

import asyncio
from typing import Any

import pytest

from heliograph import Context, Delegation, Heliograph
from heliograph.client import StopResult
from heliograph.errors import InvalidInput, NotFound
from tests.runtime.kit import START, Rig, names, one, until


class Work:
    """An agent's work that never ends by itself. `ended` is how it ended, once it has."""

    def __init__(self, *, is_stubborn: bool = False) -> None:
        self.begun = asyncio.Event()
        self.ended: list[str] = []
        self._is_stubborn = is_stubborn

    async def __call__(self, _ctx: Context) -> None:
        self.begun.set()
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.ended.append("cancelled")
                if not self._is_stubborn or len(self.ended) > 1:
                    raise


def working(work: Work, **options: Any) -> Heliograph:
    app = Heliograph("works")

    @app.agent(activate_on=START, **options)
    async def worker(ctx: Context) -> None:
        await work(ctx)

    return app


@pytest.mark.proves("G-66", "G-08", "CTL-40", "LC-65", "L0-80", "L0-87")
async def test_stopped_running_turn_is_cancelled_at_once_and_cleans_up(rig: Rig) -> None:
    work = Work()
    app = working(work)
    run_id = await rig.start(app)
    async with rig.serving(app, lease_seconds=3600, sweep_seconds=3600):  # only the bell notifies the owner
        async with asyncio.timeout(60):
            await work.begun.wait()
            turn = await rig.turn_of("worker")
            assert await rig.client.stop_turn(turn.turn_id, reason="no longer needed") == StopResult("stopping")
            signals = await rig.ended(run_id)
    assert work.ended == ["cancelled"]
    failed = one(signals, "agent:failed")
    assert (failed["outcome"], failed["error"]["code"], failed["error"]["message"]) == (
        "canceled", "CANCELED", "no longer needed",
    )  # fmt: skip
    assert one(signals, "halt") == {"reason": "no longer needed", "graceful": True}
    assert one(signals, "terminated")["status"] == "canceled"
    (card,) = await rig.runtime.reader.cards(turn.turn_id)
    assert card.kind == "task.deliverable"
    assert await rig.client.stop_turn(turn.turn_id) == StopResult("already_done", "canceled")


@pytest.mark.proves("CTL-73", "G-08", "K12")
async def test_stopped_turn_past_its_grace_is_ended_by_the_kernel(rig: Rig) -> None:
    work = Work(is_stubborn=True)
    app = working(work)
    run_id = await rig.start(app)
    async with rig.serving(app, lease_seconds=0.6):
        await work.begun.wait()
        turn = await rig.turn_of("worker")
        await rig.client.stop_turn(turn.turn_id, grace_seconds=0.1)
        signals = await rig.ended(run_id)
        await until(lambda: len(work.ended) == 2)  # and its owner learns that it has lost it
    assert one(signals, "agent:failed")["outcome"] == "canceled"
    assert names(signals).count("agent:failed") == 1
    assert len(await rig.runtime.reader.all_signals(run_id)) == len(signals)


@pytest.mark.proves("K12", "L0-110", "G-09")
async def test_running_turn_that_is_forced_to_stop_writes_nothing_more(rig: Rig) -> None:
    work = Work()
    app = working(work)
    run_id = await rig.start(app)
    async with rig.serving(app, lease_seconds=3600, sweep_seconds=0.05):
        await work.begun.wait()
        turn = await rig.turn_of("worker")
        assert await rig.client.stop_turn(turn.turn_id, now=True) == StopResult("stopped")
        signals = await rig.ended(run_id)
        await until(lambda: work.ended == ["cancelled"])  # its owner was rung, too
    assert "terminated" not in names(signals)
    assert one(signals, "halt") == {"reason": "user_interrupt", "graceful": False}


@pytest.mark.proves("L0-47", "L0-80")
@pytest.mark.parametrize("now", [True, False])
async def test_stopped_suspended_turn_ends_in_place_and_its_call_accepts_no_result(rig: Rig, now: bool) -> None:
    app = Heliograph("waits")

    @app.agent(activate_on=START)
    async def waiter(ctx: Context) -> Any:
        return await ctx.call("a")

    run_id = await rig.start(app)
    async with rig.serving(app):
        (command,) = await rig.taken("a")
        assert await rig.client.stop_turn(command.turn_id, now=now) == StopResult("stopped")
        assert await command.report(result=1) == "turn_done"
        assert one(await rig.ended(run_id), "agent:failed")["outcome"] == "canceled"
    (wait,) = await rig.runtime.reader.waits(command.turn_id)
    assert wait.state == "closed"
    assert await rig.client.take_commands(["a"]) == []


@pytest.mark.proves("G-65")
async def test_stopped_queued_turn_ends_in_place_and_the_turn_before_it_continues(rig: Rig) -> None:
    work = Work()
    app = working(work)
    run_id = await rig.start(app)
    async with rig.serving(app):
        await work.begun.wait()
        first = await rig.turn_of("worker")
        queued = await rig.client.enqueue(run_id, "worker", {"n": 1})
        assert (await rig.runtime.reader.turn(queued)).status == "queued"
        assert await rig.client.stop_turn(queued) == StopResult("stopped")
        assert (await rig.runtime.reader.turn(queued)).outcome == "canceled"
        assert (await rig.runtime.reader.turn(first.turn_id)).status == "running"
        (card,) = await rig.runtime.reader.cards(queued)
        assert card.kind == "task.deliverable"
        await rig.client.stop_turn(first.turn_id)
        await rig.ended(run_id)


@pytest.mark.proves("CTL-35", "L0-38")
@pytest.mark.parametrize("now", [True, False])
async def test_descendants_of_a_stopped_turn_are_stopped(rig: Rig, now: bool) -> None:
    work = Work()
    app = Heliograph("descends")

    @app.agent(activate_on=START)
    async def parent(ctx: Context) -> Any:
        return await ctx.delegates([Delegation("middle"), Delegation("middle")])

    @app.agent(on_request=True)
    async def middle(ctx: Context) -> Any:
        return await ctx.delegate("leaf")

    @app.agent(on_request=True)
    async def leaf(ctx: Context) -> Any:
        await work(ctx)

    run_id = await rig.start(app)
    async with rig.serving(app):
        await until(lambda: _count(rig, "leaf", "running", 2))
        turn = await rig.turn_of("parent")
        await rig.client.stop_turn(turn.turn_id, now=now)
        await rig.ended(run_id)
        await until(lambda: len(work.ended) == 2)
    assert {t.outcome for t in await rig.runtime.reader.turns()} == {"canceled"}


async def _count(rig: Rig, agent: str, status: str, count: int) -> bool:
    turns = await rig.runtime.reader.turns()
    return sum((turn.agent, turn.status) == (agent, status) for turn in turns) == count


@pytest.mark.parametrize("now", [True, False])
async def test_stopped_run_wakes_no_agent_and_ends_as_canceled_with_the_reason(rig: Rig, now: bool) -> None:
    work = Work()
    app = Heliograph("run")

    @app.agent(activate_on=START)
    async def works(ctx: Context) -> None:
        await work(ctx)

    @app.agent(activate_on=START)
    async def waits(ctx: Context) -> Any:
        return await ctx.call("a")

    app.agent(name="hears", activate_on=["agent:failed"])(lambda _ctx: None)
    run_id = await rig.start(app)
    async with rig.serving(app):
        await work.begun.wait()
        await rig.taken("a")
        assert await rig.client.stop_run(run_id, now=now, reason="resource_limit") == StopResult("stopping")
        signals = await rig.ended(run_id)
    end = one(signals, "workflow:end")
    assert (end["outcome"], end["reason"]) == ("canceled", "resource_limit")
    assert {turn.agent for turn in await rig.runtime.reader.turns()} == {"works", "waits"}
    assert await rig.client.stop_run(run_id) == StopResult("already_done", "canceled")


async def test_stop_of_an_unknown_turn_or_run_is_rejected(rig: Rig) -> None:
    for stop, code in ((rig.client.stop_turn, "unknown_turn"), (rig.client.stop_run, "unknown_run")):
        with pytest.raises(NotFound) as missing:
            await stop("nothing")
        assert missing.value.code == code
        with pytest.raises(InvalidInput) as wrong:
            await stop("../x")
        assert wrong.value.code == "invalid_id"
        for options in ({"grace_seconds": -1}, {"grace_seconds": 1e6}, {"reason": ""}, {"reason": "x" * 1001}):
            with pytest.raises(InvalidInput):
                await stop("nothing", **options)


async def test_turn_with_its_output_is_delivered_despite_a_stop(rig: Rig) -> None:
    work = Work()
    app = Heliograph("done")

    @app.agent(activate_on=START, updates="seen")
    async def worker(ctx: Context) -> str:
        work.begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "saved"  # an agent may save its work: the value that it returns is its output
        return "never"

    run_id = await rig.start(app)
    async with rig.serving(app):
        await work.begun.wait()
        await rig.client.stop_turn((await rig.turn_of("worker")).turn_id)
        signals = await rig.ended(run_id)
    assert one(signals, "workflow:end")["state"] == {"seen": "saved"}
