"""The log of a run, and the facts that follow from it alone."""

import asyncio
from typing import Any

import pytest

from heliograph import Context, Heliograph
from heliograph.errors import HarnessError, InvalidInput, NotFound
from heliograph.models import ScriptedModel
from heliograph.signals.state_change import changed_value
from heliograph.types import Json
from tests.runtime.kit import SOON_SECONDS, START, Rig, names, one, until

PAGE = 1000  # signals that the reader fetches at once
EACH_KIND: list[Json] = [None, False, -1, 0.5, "", "text", [], [1, [None]], {}, {"a": {"b": [True]}}]


@pytest.mark.proves("SIG-02", "SIG-34")
async def test_state_of_a_run_is_rebuilt_from_its_log_alone(rig: Rig) -> None:
    app = Heliograph("folded", reducers={"notes": lambda old, new: sorted([*old, new])})
    for name in ("a", "b", "c"):
        app.agent(name=name, activate_on=START, updates="notes")(lambda ctx: ctx.agent)
    app.agent(name="last", activate_on=["state:notes:changed"], when=lambda state: len(state["notes"]) == 3,
              updates=["count", "is_done"])(lambda ctx: {"count": len(ctx.state["notes"]), "is_done": True})  # fmt: skip
    result = await rig.run(app, {"notes": [], "topic": "ink"})

    log = await rig.runtime.reader.all_signals(result.run_id)
    assert log[0].name == "workflow:start"
    folded = dict(log[0].payload["state"])  # type: ignore[index,call-overload,arg-type]
    for signal in log[1:]:
        match signal.name.split(":"):
            case ["state", key, "changed"]:
                folded[key] = changed_value(folded.get(key), signal.payload)
    assert folded == {"notes": ["a", "b", "c"], "topic": "ink", "count": 3, "is_done": True}
    assert folded == result.state == (await rig.runtime.reader.run(result.run_id)).state


@pytest.mark.proves("SIG-62", "G-44")
async def test_trace_longer_than_a_page_is_returned_whole_and_in_order(rig: Rig) -> None:
    app = Heliograph("long")

    @app.agent(activate_on=START, emits=["n:next"])
    def counts(ctx: Context) -> None:
        for n in range(PAGE + 200):
            ctx.emit("n:next", n)

    result = await rig.run(app)
    assert [signal.payload for signal in result.signals if signal.name == "n:next"] == list(range(PAGE + 200))
    assert [signal.seq for signal in result.signals] == list(range(1, len(result.signals) + 1))
    first = await rig.runtime.reader.signals(result.run_id)
    rest = await rig.runtime.reader.signals(result.run_id, after=len(first))
    assert len(first) == PAGE
    assert first + rest == result.signals


@pytest.mark.proves("SIG-12")
async def test_payload_of_any_kind_of_json_arrives_as_it_was_emitted(rig: Rig) -> None:
    payloads: list[Any] = []
    app = Heliograph("kinds")

    @app.agent(activate_on=START, emits=["x:said"])
    def speaker(ctx: Context) -> None:
        for value in EACH_KIND:
            ctx.emit("x:said", value)

    @app.agent(activate_on=["x:said"])
    def listener(ctx: Context) -> None:
        payloads.append(ctx.signal.payload)

    result = await rig.run(app)
    assert payloads == EACH_KIND
    assert [signal.payload for signal in result.signals if signal.name == "x:said"] == EACH_KIND


@pytest.mark.proves("SIG-25", "SIG-43", "SIG-51")
@pytest.mark.parametrize(
    ("reply", "expected"),
    [("Once.", ["harness:start", "harness:end"]), (HarnessError("no"), ["harness:start", "harness:error"])],
    ids=["answered", "failed"],
)
async def test_agent_may_subscribe_to_every_signal_of_a_harness(rig: Rig, reply: Any, expected: list[str]) -> None:
    app = Heliograph("listened", reducers={"heard": lambda old, new: [*old, new]})
    app.prompt_agent("writer", "Write.", activate_on=START, model=ScriptedModel([reply]))
    app.agent(name="listener", activate_on=["harness:**"], updates="heard")(lambda ctx: ctx.signal.name)
    result = await rig.run(app, {"heard": []})
    assert result.state == {"heard": expected}
    assert [name for name in names(result.signals) if name.startswith("harness:")] == expected


@pytest.mark.proves("LC-02")
async def test_phase_of_a_turn_is_visible_while_it_acts(rig: Rig) -> None:
    may_end = asyncio.Event()
    app = Heliograph("phases")

    @app.agent(activate_on=START)
    async def acts(_ctx: Context) -> None:
        async with asyncio.timeout(60):
            await may_end.wait()

    async def phase() -> str | None:
        (turn,) = await rig.runtime.reader.turns(run_id=run_id)
        return turn.phase

    async def is_acting() -> bool:
        return await phase() == "act"

    run_id = await rig.start(app)
    assert await phase() is None  # dispatched: no worker has claimed it
    async with rig.serving(app, lease_seconds=0.6):
        await until(is_acting)
        may_end.set()
        assert one(await rig.ended(run_id), "workflow:end")["outcome"] == "success"
    assert await phase() is None


async def test_follower_that_returns_after_the_end_gets_no_signal(rig: Rig) -> None:
    app = Heliograph("over")
    app.agent(name="a", activate_on=START)(lambda ctx: 1)
    result = await rig.run(app)
    async with asyncio.timeout(SOON_SECONDS):
        for after in (result.signals[-1].seq, result.signals[-1].seq + 7):
            assert [signal async for signal in rig.client.follow(result.run_id, after)] == []
    with pytest.raises(InvalidInput, match="after must be the seq of a signal"):
        await anext(rig.client.follow(result.run_id, 2**63))


async def test_awaited_follower_finds_an_unknown_run_before_the_first_signal(rig: Rig) -> None:
    app = Heliograph("known")
    app.agent(name="a", activate_on=START)(lambda ctx: 1)
    result = await rig.run(app)
    for find in (lambda: rig.client.follow("run_other"), lambda: anext(rig.client.follow("run_other"))):
        with pytest.raises(NotFound, match="no run run_other"):
            await find()
    async with asyncio.timeout(SOON_SECONDS):
        assert [signal async for signal in await rig.client.follow(result.run_id)] == result.signals
