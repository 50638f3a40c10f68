"""The agent loop after its worker is dropped at each named place in turn: another worker continues."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from heliograph import Heliograph, external_tool, tool
from heliograph.models import ModelRequest, ScriptedModel
from tests.grids import mostly_more
from tests.runtime.kit import START, Rig, kill, one
from tests.runtime.loop_kit import call

DROPS_MAX = 60


class Dropped:
    """A world in which the worker stops forever at its n-th named place."""

    def __init__(self, rig: Rig, at: int, monkeypatch: pytest.MonkeyPatch):
        self.count, self.where = 0, ""
        self.has_come = asyncio.Event()

        async def point(name: str) -> None:
            self.count += 1
            if self.count == at:
                self.where = name
                self.has_come.set()
            if self.count >= at:
                await asyncio.Event().wait()  # the turn stops here, and so do its parallel tasks

        monkeypatch.setattr(rig.runtime.world, "failpoint", point)


class Shop:
    """An agent with parallel tools, an approval, an external tool and a result; it records the effects."""

    def __init__(self) -> None:
        self.did: list[str] = []
        self.model = ScriptedModel(
            [
                [call("look", {"at": "a"}, "x1"), call("look", {"at": "b"}, "x2"), call("nope", {}, "x3")],
                [call("pay", {"amount": 5}, "x1"), call("weather", {}, "x2"), call("look", {"at": "c"}, "x3")],
                "words",
                call("submit_result", {"total": 5}),
            ],
            per_turn=True,
        )
        self.app = Heliograph("shop")
        self.app.prompt_agent(
            "worker", "Work.", model=self.model, activate_on=START, updates="out", result_fields=[{"name": "total"}],
            tools=[
                tool(effect="idempotent")(self.look), tool(effect="idempotent", approval=True)(self.pay),
                external_tool("weather", "The weather."),
            ],
        )  # fmt: skip

    async def look(self, at: str) -> str:
        self.did.append(f"look {at}")
        return at.upper()

    def pay(self, amount: int) -> str:
        self.did.append("pay")
        return f"paid {amount}"


async def _answers(rig: Rig) -> None:
    """Answer every question and report every external call, even while no worker runs."""
    while True:
        for turn in await rig.runtime.reader.turns():
            for wait in await rig.runtime.reader.waits(turn.turn_id):
                if wait.state == "open" and wait.kind == "human":
                    await rig.client.report(turn.turn_id, wait.call_id, result={"decision": "grant"})
        for command in await rig.client.take_commands(["weather"]):
            await command.report(result="sun")
        await asyncio.sleep(0.02)


async def _drop(rig: Rig, shop: Shop, run_id: str, dropped: Dropped) -> bool:
    """Work until the place is reached, and go without a word. False: the run ended before."""
    worker = rig.runtime.worker(shop.app.workflow, lease_seconds=0.2)
    working = asyncio.create_task(worker.run())
    ended = asyncio.create_task(rig.ended(run_id))
    reached = asyncio.create_task(dropped.has_come.wait())
    await asyncio.wait({ended, reached}, return_when=asyncio.FIRST_COMPLETED)
    is_dropped = reached.done()
    await kill(worker, working)
    for task in (ended, reached):
        task.cancel()
    await asyncio.gather(ended, reached, return_exceptions=True)
    return is_dropped


def _plain(request: ModelRequest) -> Any:
    return [(type(m).__name__, getattr(m, "content", ""), getattr(m, "tool_calls", ())) for m in request.messages]


@pytest.mark.more
@pytest.mark.proves("K7", "K13", "L0-100", "L0-111")
@pytest.mark.parametrize("part", mostly_more(range(4), {0}))
async def test_dropped_worker_loses_no_recorded_result_and_the_model_receives_the_same(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    """Every fourth place, from `part` on, until a run ends before the next one."""
    seen: set[str] = set()
    at, is_dropped = 0, True
    for at in range(part + 1, DROPS_MAX, 4):
        shop = Shop()
        run_id = await rig.start(shop.app)
        outside = asyncio.create_task(_answers(rig))
        with monkeypatch.context() as patch:
            dropped = Dropped(rig, at, patch)
            is_dropped = await _drop(rig, shop, run_id, dropped)
        recorded = await _recorded(rig)
        done_before = list(shop.did)
        async with rig.serving(shop.app):
            state = one(await rig.ended(run_id), "workflow:end")["state"]
        outside.cancel()
        where = f"dropped at {at}, {dropped.where}"
        assert state == {"out": {"total": 5}}, where
        for tool_and_item, call_id in {"look a": "m1-1", "look b": "m1-2", "look c": "m2-3", "pay": "m2-1"}.items():
            times = 1 if call_id in recorded else 2  # an effect without a record may happen once more
            assert 1 <= shop.did.count(tool_and_item) <= times, where
            assert call_id not in recorded or shop.did.count(tool_and_item) == done_before.count(tool_and_item), where
        requests = [_plain(request) for request in shop.model.requests]
        steps = sorted({len(each): each for each in requests}.values(), key=len)
        assert len(steps) == 4, where
        assert all(each == steps[[len(s) for s in steps].index(len(each))] for each in requests), where
        assert len(requests) <= 5, where  # at most one model call is repeated
        seen.add(dropped.where)
        if not is_dropped:
            break
    assert not is_dropped, f"a run has more than {DROPS_MAX} places"
    assert at > 16  # as many places as an uninterrupted run reaches
    assert "before_begin" in seen or "before_record" in seen


async def _recorded(rig: Rig) -> set[str]:
    [turn, *_] = await rig.runtime.reader.turns()
    return {wait.call_id for wait in await rig.runtime.reader.waits(turn.turn_id) if wait.state == "resolved"}


async def test_suspended_turn_has_no_owner_and_continues_in_another_process(rig: Rig) -> None:
    """The first worker has ended, and its application with it. Another one has the same agents, and no memory."""
    first = Shop()
    run_id = await rig.start(first.app)
    async with rig.serving(first.app):
        await rig.turn_of("worker", "suspended")
    outside = asyncio.create_task(_answers(rig))
    second = Shop()
    async with rig.serving(second.app):
        state = one(await rig.ended(run_id), "workflow:end")["state"]
    outside.cancel()
    assert state == {"out": {"total": 5}}
    assert (sorted(first.did), second.did) == (["look a", "look b", "look c"], ["pay"])
    assert (len(first.model.requests), len(second.model.requests)) == (2, 2)
