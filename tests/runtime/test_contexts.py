"""An agent reads the box that its turn was given, and no other."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from heliograph import Context, Defer, Delegation, Heliograph
from tests.runtime.kit import START, Rig, until


def texts(cards: list[Any]) -> list[Any]:
    return [card.content for card in cards]


def reader() -> Heliograph:
    app = Heliograph("reader", reducers={"seen": lambda old, new: [*(old or []), new]})

    @app.agent(activate_on=START, updates="first")
    async def opener(ctx: Context) -> Any:
        return texts(await ctx.context())

    @app.agent(on_request=True, updates="seen")
    async def clerk(ctx: Context) -> Any:
        return {"context": texts(await ctx.context()), "task": ctx.task}

    @app.agent(on_request=True)
    async def chief(ctx: Context) -> Any:
        await ctx.delegate("clerk", "own", context_box_id=ctx.context_box_id)
        results = await ctx.delegates(
            [Delegation("clerk", "none"), Delegation("clerk", "other", context_box_id="other")]
        )
        return [result.status for result in results]

    return app


@pytest.mark.proves("L0-90", "L0-93", "L0-95")
async def test_output_of_an_agent_depends_on_its_context_and_its_task(rig: Rig) -> None:
    """Output_Box = Agent(Context_Box, User_Prompt)."""
    app = reader()
    boxes = rig.client.boxes
    box = await boxes.put([{"kind": "note", "content": {"n": n}} for n in range(250)])  # more than a page
    assert await boxes.put([{"kind": "note", "content": 1}], box_id="small") == "small"
    run_id = await rig.start(app)
    turns = [
        await rig.client.enqueue(run_id, "clerk", f"task {n}", context_box_id=b)
        for n, b in enumerate((box, "small", None))
    ]
    async with rig.serving(app):
        await rig.ended(run_id)
    found = [(await boxes.read(f"box_{turn}"))[-1].content for turn in turns]
    assert [{field["name"]: field["value"] for field in content["fields"]} for content in found] == [
        {"context": [{"n": n} for n in range(250)], "task": "task 0"},
        {"context": [1], "task": "task 1"},
        {"context": [], "task": "task 2"},
    ]
    assert (await rig.runtime.reader.run(run_id)).state["first"] == []  # a turn without a box has nothing to read


@pytest.mark.proves("L0-94", "L0-90")
async def test_turn_reads_exactly_its_own_box_in_every_attempt(rig: Rig) -> None:
    app = Heliograph("again", reducers={"seen": lambda old, new: [*(old or []), new]})
    seen: list[Any] = []

    @app.agent(on_request=True, updates="seen")
    async def clerk(ctx: Context) -> Any:
        cards = await ctx.context()
        seen.append(copy.deepcopy(texts(cards)))
        cards[0].content["n"] = "spoiled"
        seen.append(texts(await ctx.context()))
        await rig.client.boxes.put([{"kind": "note", "content": {"n": "other"}}])  # another box
        if ctx.deferrals == 0:
            raise Defer("once more", 0.0)
        await ctx.pause(0.01)
        return ctx.context_box_id

    @app.agent(activate_on=START)
    async def keeper(ctx: Context) -> None:
        await ctx.call("wait", needs_token=False)

    run_id = await rig.start(app)
    box = await rig.client.boxes.put([{"kind": "note", "content": {"n": 1}}])
    await rig.client.enqueue(run_id, "clerk", context_box_id=box)
    async with rig.serving(app):
        turn = await rig.turn_of("clerk", "done")
        [command] = await rig.taken("wait")
        await command.report(result=1)
        await rig.ended(run_id)
    assert turn.outcome == "success"
    assert seen == [[{"n": 1}]] * 6  # deferred, paused, resumed
    assert (await rig.runtime.reader.run(run_id)).state["seen"] == [box]


@pytest.mark.proves("L0-38", "L0-93")
async def test_delegation_passes_on_a_context_or_none(rig: Rig) -> None:
    app = reader()
    boxes = rig.client.boxes
    mine = await boxes.put([{"kind": "note", "content": "mine"}])
    await boxes.put([{"kind": "note", "content": "theirs"}], box_id="other")
    run_id = await rig.start(app)
    await rig.client.enqueue(run_id, "chief", context_box_id=mine)
    async with rig.serving(app):
        await rig.ended(run_id)
    seen = (await rig.runtime.reader.run(run_id)).state["seen"]
    assert sorted((each["task"], each["context"]) for each in seen) == [
        ("none", []), ("other", ["theirs"]), ("own", ["mine"]),
    ]  # fmt: skip


@pytest.mark.proves("L0-96", "L0-98", "L0-92")
async def test_next_turn_reads_the_cards_of_the_turn_before(rig: Rig) -> None:
    app = Heliograph("rounds")

    @app.agent(on_request=True)
    async def writer(ctx: Context) -> Any:
        return {"said": ctx.task, "read": len(await ctx.context())}

    @app.agent(activate_on=START)
    async def keeper(ctx: Context) -> None:
        await ctx.call("wait", needs_token=False)

    run_id = await rig.start(app)
    box: str | None = None
    async with rig.serving(app):
        for n in range(3):
            turn_id = await rig.client.enqueue(
                run_id, "writer", n, context_box_id=box, turn_id=f"turn_round_{rig.runtime.settings.project}_{n}"
            )

            async def is_done(turn_id: str = turn_id) -> bool:
                return (await rig.runtime.reader.turn(turn_id)).status == "done"

            await until(is_done)
            box = await rig.client.boxes.fork(f"box_{turn_id}")
            [card] = await rig.client.boxes.read(box)
            assert card.turn_id == turn_id
            assert [field["value"] for field in card.content["fields"]] == [n, min(n, 1)]
        [command] = await rig.taken("wait")
        await command.report(result=1)
        await rig.ended(run_id)


@pytest.mark.proves("L0-97", "L0-82")
async def test_running_turn_continues_in_a_fork_and_gets_its_new_context_at_the_next_claim(
    rig: Rig,
) -> None:
    app = Heliograph("swap")
    seen: list[Any] = []

    @app.agent(activate_on=START, updates="said")
    async def writer(ctx: Context) -> Any:
        boxes = rig.client.boxes
        if not ctx.is_replaying:
            context = await boxes.put([{"kind": "summary", "content": "short"}], box_id=f"{ctx.turn_id}-short")
            output = await boxes.fork(f"box_{ctx.turn_id}", writer_turn_id=ctx.turn_id)
            await boxes.replace(ctx.turn_id, context_box_id=context, output_box_id=output)
        seen.append(texts(await ctx.context()))
        await ctx.pause(0.01)
        return "done"

    run_id = await rig.start(app)
    async with rig.serving(app):
        await rig.ended(run_id)
    assert seen[0] == []
    assert seen[-1] == ["short"]
    turn = await rig.turn_of("writer", "done")
    assert not turn.output_box_id.startswith("box_")
    assert (await rig.client.boxes.read(turn.output_box_id))[-1].content == {"text": "done"}
