"""Pending reactions are committed without waiting for a timer, despite changes of the run (K25)."""

from __future__ import annotations

import pytest

from heliograph import Context, Heliograph
from heliograph.worker.claim_loop import Worker
from tests.runtime.kit import START, Rig, one, until


async def waits(ctx: Context) -> None:
    await ctx.pause(300)


def waiting(*agents: str) -> Heliograph:
    app = Heliograph("waits")
    for agent in agents:
        app.agent(name=agent, activate_on=START)(waits)
    return app


def family() -> Heliograph:
    app = Heliograph("family")

    @app.agent(activate_on=START)
    async def parent(ctx: Context) -> None:
        await ctx.delegate("child")

    @app.agent(on_request=True)
    async def child(ctx: Context) -> None:
        await ctx.pause(300)

    return app


async def tidied(rig: Rig, worker: Worker) -> None:
    """Wait until the work of the bells is done and the events are published, usually by the timer."""

    async def is_tidy() -> bool:
        await worker.watchdog.sweep()
        return await rig.is_published()

    await until(is_tidy)


@pytest.mark.proves("K25", "K26")
async def test_reaction_to_a_changed_run_is_recomputed_at_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    app = waiting("first", "second")
    run_id = await rig.start(app)
    async with rig.serving(app):
        turns = [(await rig.turn_of(agent, "suspended")).turn_id for agent in ("first", "second")]
    await rig.client.stop_turn(turns[0], now=True)
    reactions: list[str] = []

    async def point(name: str) -> None:
        """The last turn of the run ends just before the reaction to the end of the other is committed."""
        if name == "before_react":
            reactions.append(name)
            await rig.client.stop_turn(turns[1], now=True)

    monkeypatch.setattr(rig.runtime.world, "failpoint", point)
    await rig.runtime.worker(app.workflow).watchdog.sweep()
    assert len(reactions) == 2  # the first one was in vain
    assert one(await rig.ended(run_id), "workflow:end")["metrics"]["turns"] == 2


@pytest.mark.proves("K25")
@pytest.mark.parametrize("by_turn", [False, True])
async def test_run_with_stopped_waiting_turns_ends_without_the_timer(rig: Rig, *, by_turn: bool) -> None:
    app = waiting("only")
    async with rig.serving(app, sweep_seconds=3600.0) as worker:
        run_id = await rig.start(app)
        turn = await rig.turn_of("only", "suspended")
        await (rig.client.stop_turn(turn.turn_id) if by_turn else rig.client.stop_run(run_id))
        assert one(await rig.ended(run_id), "workflow:end")["metrics"]["turns"] == 1
        await tidied(rig, worker)


@pytest.mark.proves("K25", "L0-80")
async def test_run_ended_by_a_bell_commits_its_pending_reactions_without_a_sweep(rig: Rig) -> None:
    app = family()
    async with rig.serving(app, sweep_seconds=3600.0) as worker:
        run_id = await rig.start(app)
        turn = await rig.turn_of("child", "suspended")
        await rig.client.stop_turn((await rig.turn_of("parent")).turn_id)
        assert one(await rig.ended(run_id), "workflow:end")["metrics"]["turns"] == 2
        assert (await rig.runtime.reader.turn(turn.turn_id)).outcome == "canceled"
        await tidied(rig, worker)


@pytest.mark.proves("K23", "K25")
async def test_rejected_reaction_is_tried_once_a_round_despite_progress_of_others(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Heliograph("two")
    for agent in "abcd":
        app.agent(name=agent, activate_on=START, when=lambda state: state["moves"])(waits)
    app.agent(name="only", activate_on=START, when=lambda state: not state["moves"])(waits)
    for agent in "xy":
        app.agent(name=agent, activate_on=["agent:failed"], when=lambda state: not state["moves"])(lambda _ctx: None)
    async with rig.serving(app):
        await rig.start(app, {"moves": True}, "run_moves")
        await rig.start(app, {"moves": False}, "run_refused")
        moving = [(await rig.turn_of(agent, "suspended")).turn_id for agent in "abcd"]
        stuck = await rig.turn_of("only", "suspended")

    async def point(name: str) -> None:
        if name == "before_react" and moving:
            await rig.client.stop_turn(moving.pop(), now=True)

    await rig.runtime.database.call("set_limits", rig.runtime.settings.project, {"fan_out_max": 1})
    await rig.client.stop_turn(stuck.turn_id, now=True)
    await rig.client.stop_turn(moving.pop(), now=True)
    monkeypatch.setattr(rig.runtime.world, "failpoint", point)
    await rig.runtime.worker(app.workflow).watchdog.sweep()
    assert moving == []
    runs = await rig.fetch("select run_id, status, rejections from heliograph.runs where project_id = $1 order by 1",
                           rig.runtime.settings.project)  # fmt: skip
    assert [tuple(run) for run in runs] == [("run_moves", "ended", 0), ("run_refused", "running", 1)]
    await rig.runtime.database.call("set_limits", rig.runtime.settings.project, {"fan_out_max": 2})
    async with rig.serving(app):
        assert one(await rig.ended("run_refused"), "workflow:end")["metrics"]["turns"] == 3


def growing() -> Heliograph:
    """Two agents whose outputs together exceed the limit of workflow:end, while a third one waits."""
    app = Heliograph("growing")
    app.agent(name="first", activate_on=START, updates="a")(lambda _ctx: "a" * 2000)
    app.agent(name="second", activate_on=START, updates="b")(lambda _ctx: "b" * 2000)
    app.agent(name="last", activate_on=START)(waits)
    return app


@pytest.mark.proves("K23", "K26")
@pytest.mark.parametrize("mode", ["stopped by its worker", "stopped by the kernel"])
async def test_run_whose_state_exceeds_the_limit_of_its_last_signal_ends_as_failed(rig: Rig, mode: str) -> None:
    app = growing()
    await rig.runtime.database.call(
        "set_limits", rig.runtime.settings.project, {"blob_bytes_max": 3000, "payload_bytes_max": 2500}
    )
    async with rig.serving(app):
        run_id = await rig.start(app)
        turn = await rig.turn_of("last", "suspended")
        await rig.turn_of("first", "done")
        await rig.turn_of("second", "done")
        if mode == "stopped by its worker":
            await rig.client.stop_turn(turn.turn_id)
        else:
            await rig.client.stop_turn(turn.turn_id, now=True)
        end = one(await rig.ended(run_id), "workflow:end")
    assert (end["outcome"], end["state"], end["code"]) == ("failed", {}, "RESOURCE_EXHAUSTED")
    assert "the payload of workflow:end has " in end["reason"]
    assert "at most 3000 are allowed" in end["reason"]
    assert "blob_bytes_max" in end["reason"]
    assert set((await rig.runtime.reader.run(run_id)).state) == {"a", "b"}
    assert await rig.runtime.world.call("doctor", rig.runtime.settings.project, False) == []
