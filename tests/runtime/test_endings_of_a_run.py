"""Endings of one run that are ready at the same time share a commit (decision 0149)."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from heliograph import Context, Heliograph
from heliograph.ledger.client import Ledger
from heliograph.recording.export import export_recording
from heliograph.recording.options import RecordingOptions
from heliograph.recording.replay_recording import replay_recording
from tests.runtime.kit import START, Rig, names, one, until

AGENTS = [f"a{n}" for n in range(8)]


class Sent:
    """The calls of finish. hold: wait in each call of an ending, before it is sent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.calls: list[list[dict[str, Any]]] = []
        self.outcomes: list[str] = []
        self.hold: Callable[[list[dict[str, Any]]], Awaitable[None]] | None = None
        write = Ledger._write

        async def recorded(ledger: Ledger, function: str, items: list[dict[str, Any]], *more: int) -> Any:
            if function != "finish":
                return await write(ledger, function, items, *more)
            self.calls.append(items)
            if self.hold is not None:
                await self.hold(items)
            rows = await write(ledger, function, items, *more)
            self.outcomes += [row["outcome"] for row in rows]
            return rows

        monkeypatch.setattr(Ledger, "_write", recorded)


def counting(name: str) -> Heliograph:
    app = Heliograph(name, reducers={"seen": lambda old, new: [*(old or []), new]})
    for agent in AGENTS:
        app.agent(name=agent, activate_on=START, updates="seen")(lambda ctx: ctx.agent)
    return app


async def assert_replayed(rig: Rig, run_id: str, app: Heliograph) -> None:
    replayed = replay_recording(await export_recording(rig.runtime.reader, run_id), app.workflow)
    assert replayed.is_same, list(replayed.lines())


async def test_endings_that_are_ready_at_once_share_a_commit(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = Sent(monkeypatch)
    result = await rig.run(counting("together"), record=RecordingOptions("together"))
    assert sorted(result.state["seen"]) == AGENTS
    await until(lambda: sent.outcomes.count("ok") == len(AGENTS))
    assert sum(map(len, sent.calls)) == len(AGENTS)  # no ending was a conflict
    assert len(sent.calls) < len(AGENTS)
    chained = next(items for items in sent.calls if len(items) > 1)
    assert [item.get("follows") for item in chained[1:]] == [item["turn_id"] for item in chained[:-1]]
    await assert_replayed(rig, result.run_id, counting("together"))


async def test_endings_of_a_run_with_a_large_state_wait_for_each_other(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = Sent(monkeypatch)
    result = await rig.run(counting("large"), {"ballast": "x" * 300_000})
    assert sorted(result.state["seen"]) == AGENTS
    assert [item.get("follows") for items in sent.calls for item in items] == [None] * len(AGENTS)


async def test_endings_after_a_conflict_are_computed_again_together(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    sent, app = Sent(monkeypatch), counting("conflict")
    app.agent(name="slow", activate_on=START)(lambda ctx: ctx.sleep(3600))

    async def stop_slow(_items: list[dict[str, Any]]) -> None:
        if len(sent.calls) == 1:
            slow = await rig.turn_of("slow", "running")
            [stop] = await rig.runtime.ledger.stop([{"turn_id": slow.turn_id, "mode": "force"}])
            assert stop.outcome == "stopped"  # the run has another version now

    sent.hold = stop_slow
    async with rig.serving(app):
        signals = await rig.ended(await rig.start(app))
    assert sorted(one(signals, "workflow:end")["state"]["seen"]) == AGENTS
    assert names(signals).count("agent:completed") == len(AGENTS)
    first = len(sent.calls[0])
    assert sent.outcomes[:first] == ["conflict"] * first
    assert all(len(items) > 1 for items in sent.calls[1:2])
    assert len(sent.calls) < len(AGENTS)


async def test_output_that_does_not_match_a_state_that_is_never_committed_does_not_fail_its_turn(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[str] = []

    def at_most_once(old: list[str] | None, new: str) -> list[str]:
        if old:
            refused.append(new)
            raise ValueError("there is one already")
        return [new]

    sent, both, tried = Sent(monkeypatch), asyncio.Barrier(2), list[str]()
    is_live = True
    app = Heliograph("mismatch", reducers={"seen": at_most_once})

    async def one_of_two(ctx: Context) -> str:
        if is_live:  # a replay has another event loop
            await both.wait()
        return ctx.agent

    for agent in ("a", "b"):
        app.agent(name=agent, activate_on=START, updates="seen")(one_of_two)

    async def stop_the_first(items: list[dict[str, Any]]) -> None:
        if len(sent.calls) == 1:
            tried.extend(item["turn_id"] for item in items)
            await until(lambda: bool(refused))  # the other one was computed from it
            await rig.runtime.ledger.stop([{"turn_id": items[0]["turn_id"], "mode": "force"}])

    sent.hold = stop_the_first
    async with rig.serving(app):
        result = await rig.run(app, record=RecordingOptions("mismatch"), worker=False)
    signals = result.signals
    assert len(tried) == 1
    assert one(signals, "agent:completed")["output"] == one(signals, "workflow:end")["state"]["seen"][0]
    assert one(signals, "agent:failed")["outcome"] == "canceled"
    is_live = False
    await assert_replayed(rig, result.run_id, app)
