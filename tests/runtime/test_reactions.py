"""Reactions as they commit: conflicts, debts, joins, and runs that end with turns in flight."""

import asyncio
from typing import Any

import pytest

from heliograph import Context, Heliograph
from heliograph.execution.project_services import ProjectServices
from heliograph.execution.run_serializer import RunSerializers
from heliograph.ledger.client import Ledger
from heliograph.worker.pending_reactions import PendingReactions
from tests.runtime.human_task_kit import open_tasks
from tests.runtime.kit import START, Rig, names, one, until


@pytest.mark.proves("K24")
async def test_critics_that_finish_at_once_both_count_and_the_editor_wakes_once(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes: list[str] = []
    came: set[str] = set()
    meeting = asyncio.Barrier(3)
    finish = Ledger.finish

    async def met(self: Ledger, item: dict[str, Any]) -> Any:
        if not item["agent_id"].endswith("editor") and item["turn_id"] not in came:
            came.add(item["turn_id"])
            async with asyncio.timeout(60):
                await meeting.wait()  # all three reactions are computed from the same version
        result = await finish(self, item)
        outcomes.append(result.outcome)
        return result

    monkeypatch.setattr(Ledger, "finish", met)
    # as if each critic had a worker of its own: in one worker the turns of a run end one after another
    enter = RunSerializers.enter
    monkeypatch.setattr(RunSerializers, "enter", lambda _gates, run_id: enter(RunSerializers(), run_id))
    critics = ("a", "b", "c")
    app = Heliograph("conflict", reducers={"found": lambda old, new: sorted([*(old or []), new])})
    for name in critics:
        app.agent(name=name, activate_on=START, emits=[f"{name}:done"], updates="found")(lambda ctx: ctx.agent)
    app.agent(name="editor", activate_when_all=[f"{name}:done" for name in critics], updates="report")(
        lambda ctx: list(ctx.state["found"])
    )

    async with rig.serving(app):
        signals = await rig.ended(await rig.start(app))
        # the log may show the end of the run before the worker has the reply to the ending that caused it
        await until(lambda: outcomes.count("ok") == 4)
    assert one(signals, "workflow:end")["state"] == {"found": ["a", "b", "c"], "report": ["a", "b", "c"]}
    assert outcomes.count("conflict") >= 2
    assert names(signals).count("agent:activated") == 4


@pytest.mark.proves("K25", "K19", "L0-87")
async def test_turn_that_the_kernel_ended_still_ends_its_run(rig: Rig) -> None:
    app = Heliograph("pending")
    app.agent(name="a", activate_on=START, ttl_seconds=0.001)(lambda _ctx: None)
    run_id = await rig.start(app)
    await rig.runtime.ledger.claim([{"target": app.name}], "busy elsewhere", 1, 30)
    async with rig.serving(app):
        signals = await rig.ended(run_id)
    assert one(signals, "agent:failed")["error"]["code"] == "TIMEOUT"
    assert one(signals, "workflow:end")["outcome"] == "failed"
    (turn,) = await rig.runtime.reader.turns()
    assert (turn.outcome, turn.deliverable_card_id) == ("timeout", f"card:{turn.turn_id}:end")


async def test_agent_may_react_to_a_turn_ended_by_the_kernel(rig: Rig) -> None:
    app = Heliograph("mended")
    app.agent(name="a", activate_on=START, max_attempts=1)(lambda _ctx: None)
    app.agent(name="medic", activate_on=["agent:failed"], updates="mended")(lambda ctx: ctx.signal.payload["agent"])
    run_id = await rig.start(app)
    await rig.claimed_by_the_dead(app)
    async with rig.serving(app):
        signals = await rig.ended(run_id)
    assert one(signals, "workflow:end")["state"] == {"mended": "a"}


# ── Waking on signals of the runtime ──


@pytest.mark.proves("SIG-44")
@pytest.mark.parametrize(
    ("pattern", "emits"),
    [("agent:completed", []), ("state:x:changed", []), ("state:**", []), ("a:*", ["a:done"]), ("terminated", [])],
)
async def test_any_signal_of_a_finished_turn_can_wake_another_agent(rig: Rig, pattern: str, emits: list[str]) -> None:
    app = Heliograph("wakes")
    app.agent(name="a", activate_on=START, updates="x", emits=emits)(lambda _ctx: 1)
    app.agent(name="b", activate_on=[pattern], when=lambda _state, signal: signal.agent == "a", updates="y")(
        lambda ctx: ctx.signal.name
    )
    result = await rig.run(app)
    assert result.state["x"] == 1
    assert result.state["y"].partition(":")[0] == pattern.partition(":")[0]


async def test_signal_emitted_mid_turn_wakes_another_agent_while_the_turn_runs(rig: Rig) -> None:
    echoed = asyncio.Event()
    app = Heliograph("midway")

    @app.agent(activate_on=START)
    async def slow(ctx: Context) -> None:
        ctx.progress(0.5)
        async with asyncio.timeout(60):
            await echoed.wait()  # it can only go on once the other has run

    @app.agent(activate_on=["agent:progress"], updates="heard")
    async def echo(ctx: Context) -> Any:
        echoed.set()
        return ctx.signal.payload["fraction"]

    result = await rig.run(app)
    assert result.outcome == "success"
    assert result.state == {"heard": 0.5}
    completed = [signal.agent for signal in result.signals if signal.name == "agent:completed"]
    assert completed == ["echo", "slow"]


@pytest.mark.proves("K26")
async def test_run_waits_for_the_reaction_to_the_last_signal_of_its_last_turn(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_ended = asyncio.Event()
    react = PendingReactions.react

    async def react_later(self: PendingReactions, services: ProjectServices) -> bool:
        await has_ended.wait()
        return await react(self, services)

    monkeypatch.setattr(PendingReactions, "react", react_later)
    app = Heliograph("lastwords")

    async def is_logged(run_id: str) -> bool:
        return "agent:progress" in names(await rig.runtime.reader.all_signals(run_id))

    @app.agent(activate_on=START)
    async def speaker(ctx: Context) -> None:
        ctx.progress(0.75)
        await until(lambda: is_logged(ctx.run_id))  # otherwise the end of the turn reacts to the signal itself

    @app.agent(activate_on=["agent:progress"], updates="heard")
    def echo(ctx: Context) -> Any:
        return ctx.signal.payload["fraction"]

    run_id = await rig.start(app)
    async with rig.serving(app):
        await rig.turn_of("speaker", "done")
        assert (await rig.runtime.reader.run(run_id)).status == "running", "a reaction is pending"
        has_ended.set()
        assert one(await rig.ended(run_id), "workflow:end")["state"] == {"heard": 0.75}


# ── Ending early ──


@pytest.mark.proves("G-42", "L0-80")
async def test_met_goal_lets_running_turns_end_and_cancels_waiting_ones(rig: Rig) -> None:
    goal_is_met = asyncio.Event()
    ran: list[str] = []
    app = Heliograph("goal", end_when=lambda state: state.get("done", False))

    @app.agent(activate_on=START, emits=["n:next"])
    def source(ctx: Context) -> None:
        for n in range(3):
            ctx.emit("n:next", n)

    @app.agent(activate_on=["n:next"])
    async def in_flight(ctx: Context) -> None:
        ran.append(str(ctx.signal.payload))
        async with asyncio.timeout(60):
            await goal_is_met.wait()

    @app.agent(activate_on=["n:next"], when=lambda _state, signal: signal.payload == 2, updates="done")
    def judge(_ctx: Context) -> bool:
        return True

    def watch(signal: Any) -> None:
        if signal.name == "workflow:terminating":
            goal_is_met.set()

    result = await rig.run(app, on_signal=watch)
    assert one(result.signals, "workflow:terminating") == {"reason": "end_when"}
    assert result.outcome == "success"
    assert ran == ["0"]
    turns = [turn for turn in await rig.runtime.reader.turns() if turn.agent == "in_flight"]
    assert sorted(turn.outcome or "" for turn in turns) == ["canceled", "canceled", "success"]
    assert all(turn.deliverable_card_id for turn in turns)


@pytest.mark.proves("G-47", "S12")
async def test_loop_of_agents_stops_at_the_limit_with_the_reason_in_its_run(rig: Rig) -> None:
    app = Heliograph("loop", max_activations=6)
    app.agent(name="ping", activate_on=[*START, "pong:said"], emits=["ping:said"])(lambda _ctx: None)
    app.agent(name="pong", activate_on=["ping:said"], emits=["pong:said"])(lambda _ctx: None)
    result = await rig.run(app)
    assert result.outcome == "failed"
    assert one(result.signals, "workflow:end")["reason"] == "activation limit of 6 reached"
    assert result.metrics["turns"] == 6


@pytest.mark.more
@pytest.mark.proves("G-47")
async def test_limit_ends_a_run_whose_other_turn_waits_for_a_tool_that_never_answers(rig: Rig) -> None:
    app = Heliograph("hosted", max_activations=6)
    app.agent(name="ping", activate_on=[*START, "pong:said"], emits=["ping:said"])(lambda _ctx: None)
    app.agent(name="pong", activate_on=["ping:said"], emits=["pong:said"])(lambda _ctx: None)

    @app.agent(activate_on=START)
    async def host(ctx: Context) -> None:
        await ctx.call("leave")

    result = await rig.run(app)
    assert (result.outcome, result.code) == ("failed", "MAX_ACTIVATIONS")
    assert (await rig.turn_of("host")).outcome == "canceled"


@pytest.mark.proves("G-47")
async def test_limit_ends_a_run_whose_agent_delegates_without_end_and_emits_nothing(rig: Rig) -> None:
    app = Heliograph("errands", max_activations=5)
    app.agent(name="hand", on_request=True)(lambda _ctx: None)

    @app.agent(activate_on=START)
    async def chief(ctx: Context) -> None:
        while True:
            await ctx.delegate("hand")

    result = await rig.run(app)
    assert (result.outcome, result.reason) == ("failed", "activation limit of 5 reached")
    assert result.metrics["activations"] == 6


@pytest.mark.proves("G-47")
async def test_conversation_outlasts_the_limit_which_counts_from_each_message(rig: Rig) -> None:
    app = Heliograph("talk", max_activations=3)

    @app.agent(activate_on=START)
    async def host(ctx: Context) -> None:
        await ctx.call("leave")

    app.agent(name="listener", on_request=True, emits=["said"])(lambda _ctx: None)
    app.agent(name="speaker", activate_on=["said"])(lambda _ctx: None)
    async with rig.serving(app):
        run_id = await rig.start(app)
        for n in range(8):
            await rig.client.enqueue(run_id, "listener", n)
            await until(lambda n=n: _has_emitted_signals(rig, n + 1))
        (command,) = await rig.taken("leave")
        await command.report(result="bye")
        assert one(await rig.ended(run_id), "workflow:end")["outcome"] == "success"


async def _has_emitted_signals(rig: Rig, times: int) -> bool:
    turns = await rig.runtime.reader.turns(limit=100)
    return sum(turn.agent == "speaker" and turn.outcome == "success" for turn in turns) == times


async def test_goal_that_is_met_ends_a_run_whose_other_turn_waits_for_a_person(rig: Rig) -> None:
    app = Heliograph("answered", end_when=lambda state: state.get("done", False))
    is_requested = asyncio.Event()

    @app.agent(activate_on=START)
    async def asker(ctx: Context) -> None:
        await ctx.ask("Still there?")

    @app.agent(activate_on=START, updates="done")
    async def judge(_ctx: Context) -> bool:
        async with asyncio.timeout(60):
            await is_requested.wait()
        return True

    async with rig.serving(app):
        run_id = await rig.start(app)
        await open_tasks(rig)
        is_requested.set()
        assert one(await rig.ended(run_id), "workflow:end")["outcome"] == "success"
    assert (await rig.turn_of("asker")).outcome == "canceled"
