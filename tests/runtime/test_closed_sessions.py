"""A session that is closed does the work that it has, like any other run, and takes no more messages."""

from __future__ import annotations

from typing import Any

import pytest

from heliograph import Context, Heliograph
from heliograph.errors import Rejected
from heliograph.recording.options import RecordingOptions
from tests.runtime.kit import Rig, names, one
from tests.runtime.session_kit import check_loop_was_limited, check_replay, talking


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
    async with talking(rig, app, agent="front", worker=False, record=record) as session:
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
    await check_replay(rig, desk())


async def test_loop_in_a_closed_session_meets_the_limit_of_activations(rig: Rig) -> None:
    app = Heliograph("desk", max_activations=3)
    app.agent(name="front", on_request=True, emits=["looped"])(lambda ctx: "loop")
    app.agent(name="again", activate_on=["looped"], emits=["looped"])(lambda ctx: "loop")
    async with talking(rig, app, agent="front", worker=False) as session:
        await session.post("loop")
    async with rig.serving(app):
        await check_loop_was_limited(rig)


async def test_session_with_more_messages_than_the_limit_of_activations_is_replayed(rig: Rig) -> None:
    app = desk(max_activations=4)
    async with talking(rig, app, agent="front") as session:
        for n in range(4):
            await session.send(str(n))
    await check_replay(rig, desk(max_activations=4))
