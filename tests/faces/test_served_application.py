"""The fixtures of the pytest plugin, as the tests of an application use them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import pytest

from heliograph import Context, Heliograph, Signal, external_tool, tool
from heliograph.errors import InvalidInput, SetupError
from heliograph.models import ScriptedModel, ToolCall
from heliograph.run_follower import RunFollower
from heliograph.testing import contains, eventually, signal
from heliograph.testing.served_application import ApplicationServer
from heliograph.testing.stubs import with_stubs
from heliograph.worker.claim_loop import Worker

START = ["workflow:start"]


def shop(paid: list[str]) -> Heliograph:
    @tool(approval=lambda call: call["amount"] > 100)
    def refund(order: str, amount: int) -> str:
        """Pay a customer back."""
        paid.append(order)
        return "paid"

    app = Heliograph("shop")
    tools = [refund, external_tool("ship", "Send a parcel.")]
    app.prompt_agent("clerk", "Help.", model="openai-chat:gpt-5", tools=tools, activate_on=START, updates="answer")
    return app


def refund_of(amount: int) -> ScriptedModel:
    return ScriptedModel([ToolCall("1", "refund", {"order": "A", "amount": amount}), "done"], per_turn=True)


async def test_application_runs_with_stubs_on_a_database_of_its_own(heliograph_app: ApplicationServer) -> None:
    paid: list[str] = []
    model = refund_of(500)
    async with heliograph_app(
        shop([]), models=model, tools={"refund": lambda order, amount: paid.append(order)}
    ) as served:
        run_id = await served.start()
        task = await served.question(run_id)
        await served.client.grant(task.turn_id, task.call_id)
        result = await served.result(run_id)
        assert await served.signals(run_id) == result.signals
    assert (result.outcome, result.state["answer"], paid) == ("success", "done", ["A"])
    assert len(model.requests) == 2
    contains(result, signal("tool:result", agent="clerk"))


async def test_follower_is_closed_where_the_waiting_ends(
    heliograph_app: ApplicationServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The garbage collector would close it later, in any thread and in any order; this once failed in a thread of a model server."""
    closed: list[str] = []
    pages = RunFollower.pages

    async def watched(self: RunFollower, run_id: str, after: int) -> AsyncGenerator[Sequence[Signal], None]:
        try:
            async with aclosing(pages(self, run_id, after)) as followed:
                async for page in followed:
                    yield page
        finally:
            closed.append(run_id)

    monkeypatch.setattr(RunFollower, "pages", watched)
    async with heliograph_app(shop([]), models=refund_of(500)) as served:
        run_id = await served.start()
        task = await served.question(run_id)
        assert closed == [run_id]
        await eventually(served, run_id, "tool:call")
        assert closed == [run_id] * 2
        async with aclosing(served.client.control_signals(run_id)) as envelopes:
            await anext(envelopes)
        assert closed == [run_id] * 3
        await served.client.deny(task.turn_id, task.call_id)


async def test_model_without_a_stub_is_never_called(heliograph_app: ApplicationServer) -> None:
    async with heliograph_app(shop([]), models={"another": refund_of(1)}) as served:
        result = await served.run()
    assert "has no stub" in result.failures[0].message


async def test_waiting_fails_at_the_end_of_the_run_with_the_nearest_miss(heliograph_app: ApplicationServer) -> None:
    app = Heliograph("short")

    @app.agent(activate_on=START, updates="n")
    async def one(ctx: Context) -> int:
        return 1

    async with heliograph_app(app) as served:
        run_id = await served.start()
        with pytest.raises(AssertionError, match=f"run {run_id} ended and asked nobody"):
            await served.question(run_id)
        with pytest.raises(AssertionError, match=r"ended without a signal(.|\n)*nearest miss: #\d+ state:n:changed"):
            await eventually(served, run_id, signal("state:n:changed", payload={"value": 2}), within_seconds=60)


async def test_worker_that_fails_ends_the_test_with_its_error(
    heliograph_app: ApplicationServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(_worker: Worker) -> bool:
        raise RuntimeError("the worker broke")

    monkeypatch.setattr(Worker, "_drain", fails)
    with pytest.raises(RuntimeError, match="the worker broke"):
        async with heliograph_app(shop([])):
            await asyncio.sleep(60)


def test_stub_for_an_unknown_or_external_tool_is_rejected() -> None:
    for name in ("refunds", "ship"):
        with pytest.raises(InvalidInput, match=f"has no tool {name} that is a function; it has refund") as rejected:
            with_stubs(shop([]), {name: print}, None)
        assert rejected.value.code == "unknown_tool"


@pytest.mark.proves("P-01")
def test_models_without_stubs_name_the_next_step() -> None:
    from heliograph.testing.stubs import StubbedModels

    own = ScriptedModel(["x"])
    assert StubbedModels(None)(own) is own
    for model, name in ((None, "the default model"), ("gpt-5", "model gpt-5")):
        with pytest.raises(SetupError, match=f"{name} has no stub: pass models="):
            StubbedModels(None)(model)
