"""A session that is closed does the work that it has, like any other run, and takes no more messages."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from heliograph import Context, Heliograph
from heliograph.client.session import open_session
from heliograph.errors import Rejected
from heliograph.recording.export import export_recording
from heliograph.recording.options import RecordingOptions
from heliograph.recording.replay_recording import replay_recording
from tests.runtime.kit import SOON_SECONDS, Rig, names, one


def desk(**options: Any) -> Heliograph:
    """An agent that answers messages, one that wakes with each reply, and one that wakes when the session is closed."""
    app = Heliograph("desk", reducers={"heard": lambda old, new: [*(old or []), new]}, **options)

    @app.agent(on_request=True, emits=["said"])
    def front(ctx: Context) -> Any:
        return ctx.task["text"]

    @app.agent(activate_on=["said"], updates="heard")
    def listener(ctx: Context) -> Any:
        return ctx.signal.payload["output"]

    @app.agent(activate_on=["workflow:terminating"], updates="summary")
    def closer(ctx: Context) -> Any:
        return ctx.signal.payload["reason"]

    return app


@pytest.mark.parametrize("is_recorded", [True, False])
async def test_last_replies_of_a_closed_session_wake_agents_and_it_ends_after_them(rig: Rig, is_recorded: bool) -> None:
    app, record = desk(), RecordingOptions("talk") if is_recorded else None
    async with (
        asyncio.timeout(SOON_SECONDS),
        open_session(rig.runtime, app.workflow, "anna", agent="front", worker=False, record=record) as session,
    ):
        pending = [await session.post("One"), await session.post("Two")]
        await session.close()
        with pytest.raises(Rejected, match="takes no more messages"):
            await session.post("Three")
        async with rig.serving(app):
            assert [(await each.reply()).text for each in pending] == ["One", "Two"]
            signals = await rig.ended("anna")
    end = one(signals, "workflow:end")
    assert (end["outcome"], end["reason"], end["state"]) == (
        "success",
        "closed",
        {"heard": ["One", "Two"], "summary": "closed"},
    )
    assert names(signals).count("workflow:terminating") == 1
    result = replay_recording(await export_recording(rig.runtime.reader, "anna"), desk().workflow)
    assert result.is_same, [*result.lines()]


async def test_loop_in_a_closed_session_meets_the_limit_of_activations(rig: Rig) -> None:
    app = Heliograph("desk", max_activations=3)
    app.agent(name="front", on_request=True, emits=["looped"])(lambda ctx: "loop")
    app.agent(name="again", activate_on=["looped"], emits=["looped"])(lambda ctx: "loop")
    async with open_session(rig.runtime, app.workflow, "anna", agent="front", worker=False) as session:
        await session.post("loop")
        await session.close()
    async with rig.serving(app):
        end = one(await rig.ended("anna"), "workflow:end")
    assert (end["outcome"], end["code"], end["reason"]) == (
        "failed",
        "MAX_ACTIVATIONS",
        "activation limit of 3 reached",
    )


async def test_session_with_more_messages_than_the_limit_of_activations_is_replayed(rig: Rig) -> None:
    app = desk(max_activations=4)
    async with asyncio.timeout(SOON_SECONDS), open_session(rig.runtime, app.workflow, "anna", agent="front") as session:
        for n in range(4):
            await session.send(str(n))
        await session.close()
    result = replay_recording(await export_recording(rig.runtime.reader, "anna"), desk(max_activations=4).workflow)
    assert result.is_same, [*result.lines()]
