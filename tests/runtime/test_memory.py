"""Memories of an agent: stored once, available to later runs, and the same in every replay."""

from __future__ import annotations

from typing import Any

import pytest

from heliograph import Context, Heliograph
from heliograph.errors import InvalidInput, Rejected, ToolFailed
from heliograph.memory import MemoryHit
from tests.runtime.kit import START, Rig, one


async def test_repeated_turn_remembers_once_and_recalls_the_same_memories(rig: Rig) -> None:
    app = Heliograph("notes")

    @app.agent(activate_on=START, updates="seen")
    async def clerk(ctx: Context) -> Any:
        before = await ctx.recall("refund")
        await ctx.remember("wants a refund", customer="Ada")
        await ctx.call("ask")  # suspends: the function runs again from its start
        after = await ctx.recall("refund")
        return [[m.text for m in before], [(m.agent, m.text, m.metadata) for m in after]]

    for earlier in (0, 1):
        run_id = await rig.start(app)
        async with rig.serving(app):
            (command,) = await rig.taken("ask")
            await command.report(result="yes")
            signals = await rig.ended(run_id)
        seen = one(signals, "workflow:end")["state"]["seen"]
        assert seen[0] == ["wants a refund"] * earlier
        assert seen[1] == [["clerk", "wants a refund", {"customer": "Ada"}]] * (earlier + 1)


@pytest.mark.proves("S1")
async def test_agent_recalls_memories_of_others_only_with_everywhere(rig: Rig) -> None:
    app = Heliograph("two")

    @app.agent(activate_on=START, emits=["told"])
    async def writer(ctx: Context) -> Any:
        await ctx.remember("the sun is far")

    @app.agent(activate_on=["told"], updates="seen")
    async def critic(ctx: Context) -> Any:
        return [len(await ctx.recall("sun")), len(await ctx.recall("sun", 3, everywhere=True))]

    assert (await rig.run(app)).state["seen"] == [0, 1]


async def test_rejected_or_malformed_memory_request_raises_in_the_agent(rig: Rig) -> None:
    app = Heliograph("wrong")

    @app.agent(activate_on=START, updates="seen")
    async def clerk(ctx: Context) -> Any:
        refusals = []
        for wrong in (lambda: ctx.remember(" "), lambda: ctx.recall("x", 0), lambda: ctx.recall(5),  # type: ignore[arg-type]
                      lambda: ctx.recall("x" * 9000), lambda: ctx.recall("\0"), lambda: ctx.recall("\ud800"),
                      lambda: ctx.remember("\0"), lambda: ctx.remember("x", k="\ud800"),
                      lambda: ctx.remember("x" * 17_000)):  # fmt: skip
            try:
                await wrong()
            except InvalidInput as error:
                refusals.append(error.code)
            except ToolFailed as error:
                refusals.append(error.message)
        return refusals

    seen = (await rig.run(app)).state["seen"]
    assert seen[:4] == ["required_field", "out_of_range", "wrong_type", "too_large"]
    assert seen[4:8] == ["nul_character", "invalid_unicode", "nul_character", "invalid_unicode"]
    assert "17002 bytes; at most 16384 are allowed" in seen[8]


class Vectors:
    def __init__(self) -> None:
        self.stored: list[tuple[Any, ...]] = []

    async def store(self, *given: Any) -> None:
        if given[3] == "never":
            raise Rejected("the store is full", code="full")
        self.stored.append(given)

    async def search(self, project: str, agent: str | None, query: str, limit: int) -> list[MemoryHit]:
        return [MemoryHit("m1", f"{project} {agent} {query} {limit}", metadata={"near": 0.5})]


async def test_application_may_use_its_own_memory_store(rig: Rig) -> None:
    vectors = Vectors()
    app = Heliograph("vectors", memory=vectors)

    @app.agent(activate_on=START, updates="seen")
    async def clerk(ctx: Context) -> Any:
        await ctx.remember("this", n=1)
        try:
            await ctx.remember("never")
        except ToolFailed as error:
            return [error.message, (await ctx.recall("sun"))[0].text]

    result = await rig.run(app)
    project = rig.runtime.settings.project
    assert result.state["seen"][0].endswith("the store is full")
    assert result.state["seen"][1] == f"{project} clerk sun 5"
    [(stored_in, memory_id, *rest)] = vectors.stored
    assert (stored_in, rest) == (project, ["clerk", "this", {"n": 1}])
    assert memory_id.endswith("-c1")


@pytest.mark.parametrize("memory", [5, "postgres", Heliograph], ids=str)
def test_invalid_memory_store_is_rejected_at_once(memory: Any) -> None:
    with pytest.raises(InvalidInput, match="store and search"):
        Heliograph("wrong", memory=memory)
