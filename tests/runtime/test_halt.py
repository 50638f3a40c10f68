"""A halt in the middle of work: of models over a socket, of tools that hang, of those that will not end, of a family."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from heliograph import Context, Delegation, Heliograph, Signal, ToolContext, tool
from heliograph.errors import Rejected
from heliograph.models import ModelReply, ModelRequest, ScriptedModel, TextDelta, ToolCall
from heliograph.testing import eventually
from heliograph.worker import leases
from tests.reach.model_server import Answer, Provider
from tests.runtime.kit import SOON_SECONDS, START, Rig, names, one, until
from tests.runtime.loop_kit import agent, call

BOTH = pytest.mark.parametrize("now", [True, False], ids=["now", "graceful"])
PROTOCOLS = pytest.mark.parametrize("model", ["openai-chat:test", "anthropic:claude-test"])
ACKNOWLEDGED_SECONDS = 5.0


def slow() -> Answer:
    """An answer that would take ten minutes."""
    return Answer([f"{n} " for n in range(20_000)], between_seconds=0.03)


async def halted(rig: Rig, run_id: str, turn_id: str, *, now: bool) -> list[Signal]:
    """The log of a run whose only turn is stopped; it is acknowledged, and ends, in time."""
    started_at = time.monotonic()
    await rig.client.stop_turn(turn_id, now=now, reason="policy_violation", actor="ada")
    acknowledged = time.monotonic() - started_at
    signals = await rig.ended(run_id)
    assert acknowledged < ACKNOWLEDGED_SECONDS
    assert one(signals, "halt") == {"reason": "policy_violation", "graceful": not now, "actor": "ada"}
    failed = one(signals, "agent:failed")
    assert (failed["outcome"], failed["error"]["message"]) == ("canceled", "policy_violation")
    [card] = [card for card in await rig.runtime.reader.cards(turn_id) if card.kind == "task.deliverable"]
    assert card.content["error"]["code"] == "CANCELED"
    return signals


async def nothing_more(rig: Rig, run_id: str, signals: list[Signal]) -> None:
    assert await rig.runtime.reader.all_signals(run_id) == signals


class Hung:
    """A tool that never returns by itself. `ends`: lets a plain function return."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.ends = threading.Event()
        self.over = threading.Event()
        self.was_cancelled: list[bool] = []

    async def waits(self) -> None:
        """Wait."""
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.over.set()

    def ignores(self) -> str:
        """Wait in a thread."""
        self.begun.set()
        self.ends.wait(20)
        self.over.set()
        return "late"

    def looks(self, ctx: ToolContext) -> str:
        """Wait in a thread until the call is abandoned."""
        self.begun.set()
        self.was_cancelled.append(ctx.is_abandoned.wait(20))
        self.over.set()
        return "late"

    async def swallows(self) -> str:
        """Wait, and return a result despite the cancellation."""
        self.begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.over.set()
        return "late"

    async def will_not_end(self) -> None:
        """Wait, and swallow every cancellation."""
        self.begun.set()
        while not self.ends.is_set():
            try:
                await asyncio.sleep(0.02)
            except asyncio.CancelledError:
                self.over.set()


@pytest.mark.proves("G-66", "G-09", "CTL-38", "CTL-40")
@PROTOCOLS
@BOTH
async def test_halt_closes_the_connection_to_the_model_and_no_late_delta_arrives(
    rig: Rig, provider: Provider, model: str, now: bool
) -> None:
    provider.answers = [slow()]
    app = agent(model)
    run_id = await rig.start(app)
    async with rig.serving(app, lease_seconds=3600):
        await eventually(rig, run_id, "text:delta", within_seconds=SOON_SECONDS)
        signals = await halted(rig, run_id, (await rig.turn_of("worker")).turn_id, now=now)
        await until(lambda: provider.disconnected == 1)
        sent = provider.events
        await nothing_more(rig, run_id, signals)
    assert len(provider.requests) == 1
    assert sent < 2000
    assert "text:complete" not in names(signals)


@pytest.mark.proves("G-66", "CTL-40", "K12")
@pytest.mark.parametrize("work", ["waits", "ignores", "looks", "swallows"])
@BOTH
async def test_hanging_tools_do_not_delay_a_halt_and_their_late_results_are_discarded(
    rig: Rig, work: str, now: bool
) -> None:
    hung = Hung()
    model = ScriptedModel([[call("quick", call_id="x1"), call(work, call_id="x2")]])

    def quick() -> str:
        """Be quick."""
        return "quick"

    app = agent(model, [quick, getattr(hung, work)])
    run_id = await rig.start(app)
    async with rig.serving(app, lease_seconds=3600):
        await until(hung.begun.is_set)
        turn = await rig.turn_of("worker")
        await until(lambda: _results(rig, turn.turn_id, 2))
        signals = await halted(rig, run_id, turn.turn_id, now=now)
        hung.ends.set()
        await until(hung.over.is_set)
        await nothing_more(rig, run_id, signals)
    assert len(model.requests) == 1
    assert hung.was_cancelled == ([True] if work == "looks" else [])
    waits = {wait.call_id: wait for wait in await rig.runtime.reader.waits(turn.turn_id)}
    assert waits["m1-1"].status == "success"
    assert all(wait.state != "open" for wait in waits.values())


async def _results(rig: Rig, turn_id: str, count: int) -> bool:
    return sum(wait.state == "resolved" for wait in await rig.runtime.reader.waits(turn_id)) >= count


@pytest.mark.proves("CTL-73", "G-08", "K12")
async def test_work_that_swallows_every_cancellation_is_forced_out_and_frees_its_slot(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "STUBBORN_SECONDS", 0.1)
    hung = Hung()
    app = Heliograph("stubborn")
    app.prompt_agent(
        "worker", "Work.", model=ScriptedModel([call("will_not_end")]), activate_on=START, tools=[hung.will_not_end]
    )
    app.agent(name="other", on_request=True)(_done)
    run_id = await rig.start(app)
    async with rig.serving(app, lease_seconds=0.3, concurrency=1, grace_seconds=0):
        await until(hung.begun.is_set)
        turn = await rig.turn_of("worker")
        other = await rig.client.enqueue(run_id, "other", {})
        assert (await rig.client.stop_turn(turn.turn_id, grace_seconds=0.2)).outcome == "stopping"
        signals = await rig.ended(run_id)
        await nothing_more(rig, run_id, signals)
        assert (await rig.runtime.reader.turn(other)).outcome == "success"
        assert not hung.ends.is_set()
        hung.ends.set()
        await nothing_more(rig, run_id, signals)
    assert one(signals, "agent:failed")["outcome"] == "canceled"


async def _done(_ctx: Context) -> str:
    return "done"


class Deaf:
    """A model that lets its cancellation pass, and calls for a tool afterwards."""

    model = "deaf"

    def __init__(self) -> None:
        self.calls_made = 0

    async def stream(self, _request: ModelRequest) -> AsyncIterator[Any]:
        self.calls_made += 1
        yield TextDelta("hm")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            yield ModelReply("hm", tool_calls=(ToolCall("x1", "mark", {}),))


@pytest.mark.proves("CTL-40")
async def test_no_tool_and_no_model_call_starts_after_a_halt_with_swallowed_cancellations(rig: Rig) -> None:
    marks = itertools.count()

    def mark() -> int:
        """Mark."""
        return next(marks)

    model = Deaf()
    app = agent(model, [mark])
    run_id = await rig.start(app)
    async with rig.serving(app, lease_seconds=3600):
        await eventually(rig, run_id, "text:delta", within_seconds=SOON_SECONDS)
        await halted(rig, run_id, (await rig.turn_of("worker")).turn_id, now=False)
    assert (model.calls_made, next(marks)) == (1, 0)


@pytest.mark.proves("CTL-40")
async def test_no_step_starts_in_an_agent_that_continues_after_its_cancellation(rig: Rig) -> None:
    begun, marks = asyncio.Event(), itertools.count()
    app = Heliograph("goes-on")

    @app.agent(activate_on=START)
    async def worker(ctx: Context) -> Any:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return await ctx.step("mark", lambda: next(marks))

    run_id = await rig.start(app)
    async with rig.serving(app, lease_seconds=3600):
        await begun.wait()
        await halted(rig, run_id, (await rig.turn_of("worker")).turn_id, now=False)
    assert next(marks) == 0


@pytest.mark.proves("G-66", "K12")
@BOTH
async def test_halted_transactional_tool_rolls_back_and_frees_its_connection(rig: Rig, now: bool) -> None:
    begun = asyncio.Event()
    table = f"bookings_{next(_tables)}"
    await rig.fetch(f"create table {table} (key text)")

    @tool(effect="transactional")
    async def book(ctx: ToolContext) -> str:
        """Book."""
        await ctx.connection.execute(f"insert into {table} values ($1)", ctx.idempotency_key)
        begun.set()
        await asyncio.Event().wait()
        return "booked"

    app = agent(ScriptedModel([call("book")]), [book])
    run_id = await rig.start(app)
    async with rig.serving(app, lease_seconds=3600):
        await begun.wait()
        await halted(rig, run_id, (await rig.turn_of("worker")).turn_id, now=now)
        assert await rig.fetch(f"select * from {table}") == []
        await rig.fetch(f"drop table {table}")  # no transaction holds a lock on it


_tables = itertools.count(1)


@pytest.mark.proves("G-65", "L0-47", "CTL-38")
@BOTH
async def test_halt_ends_a_turn_that_waits_for_humans_and_withdraws_its_questions(rig: Rig, now: bool) -> None:
    paid = itertools.count()

    def pay() -> int:
        """Pay."""
        return next(paid)

    app = agent(ScriptedModel([[call("pay", call_id="x1"), call("pay", call_id="x2"), call("ask_human", {"question": "Why?"}, "x3")]]),
                [tool(approval=True)(pay)], asks_human=True)  # fmt: skip
    run_id = await rig.start(app)
    async with rig.serving(app):
        turn = await rig.turn_of("worker", "suspended")
        open_tasks = await rig.client.approvals()
        assert len(open_tasks) == 3
        signals = await halted(rig, run_id, turn.turn_id, now=now)
        assert await rig.client.approvals() == []
        for task in open_tasks[:2]:
            with pytest.raises(Rejected) as late:
                await rig.client.grant(task.turn_id, task.call_id)
            assert late.value.code == "turn_done"
        await nothing_more(rig, run_id, signals)
    assert next(paid) == 0


@pytest.mark.proves("CTL-35", "G-66", "L0-87")
@BOTH
async def test_halt_reaches_models_tools_and_outside_calls_of_all_descendants(
    rig: Rig, provider: Provider, now: bool
) -> None:
    provider.answers = [slow()]
    hung = Hung()
    app = Heliograph("family")

    @app.agent(activate_on=START)
    async def parent(ctx: Context) -> Any:
        return await ctx.delegates([Delegation("asks"), Delegation("middle"), Delegation("calls")])

    @app.agent(on_request=True)
    async def middle(ctx: Context) -> Any:
        return await ctx.delegate("works")

    @app.agent(on_request=True)
    async def calls(ctx: Context) -> Any:
        return await ctx.call("outside")

    app.prompt_agent("asks", "Ask.", model="openai-chat:test", on_request=True)
    app.prompt_agent("works", "Work.", model=ScriptedModel([call("waits")]), on_request=True, tools=[hung.waits])
    run_id = await rig.start(app)
    async with rig.serving(app, lease_seconds=3600):
        await eventually(rig, run_id, "text:delta", within_seconds=SOON_SECONDS)
        await until(hung.begun.is_set)
        (command,) = await rig.taken("outside")
        await rig.turn_of("parent", "suspended")
        await rig.client.stop_turn((await rig.turn_of("parent")).turn_id, now=now)
        signals = await rig.ended(run_id)
        await until(lambda: provider.disconnected == 1)
        await until(hung.over.is_set)
        assert await command.report(result="late") == "turn_done"
        await nothing_more(rig, run_id, signals)
    assert {turn.outcome for turn in await rig.runtime.reader.turns()} == {"canceled"}
    assert names(signals).count("agent:failed") == 5


@BOTH
async def test_run_is_halted_while_all_its_models_stream(rig: Rig, provider: Provider, now: bool) -> None:
    provider.answers = [slow()]
    app = Heliograph("choir")
    for number in range(5):
        app.prompt_agent(f"voice{number}", "Sing.", model="openai-chat:test", activate_on=START)
    run_id = await rig.start(app)
    async with rig.serving(app, lease_seconds=3600):
        await until(lambda: _all_stream(rig, run_id, 5))
        await rig.client.stop_run(run_id, now=now, reason="resource_limit", actor="ada")
        signals = await rig.ended(run_id)
        await until(lambda: provider.disconnected == 5)
        await nothing_more(rig, run_id, signals)
    assert one(signals, "workflow:terminating") == {"reason": "resource_limit", "actor": "ada"}
    assert [signal.payload["actor"] for signal in signals if signal.name == "halt"] == ["ada"] * 5  # type: ignore[index,call-overload]
    assert one(signals, "workflow:end")["outcome"] == "canceled"


async def _all_stream(rig: Rig, run_id: str, count: int) -> bool:
    return len({s.agent for s in await rig.runtime.reader.all_signals(run_id) if s.name == "text:delta"}) == count
