"""Misbehaving tools: each call ends alone, with a reason for the model."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from typing import Any

import pytest

from heliograph import Heliograph, tool
from heliograph.agent_loop import local_tools
from heliograph.errors import AgentFailed, ToolFailed
from heliograph.execution.step_recorder import StepRecorder
from heliograph.models import ScriptedModel
from heliograph.turn.calls import CallRequest
from heliograph.turn.interruptions import TurnLost
from tests.runtime.kit import START, Rig, until
from tests.runtime.loop_kit import agent, call, results


class Odd(BaseException):
    """An exception of a library that means to pass all handlers."""


def _raise(error: type[BaseException]) -> None:
    if error is SystemExit:
        sys.exit(2)
    raise error


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit, Odd, asyncio.CancelledError])
async def test_tool_error_that_would_end_a_program_reaches_the_model_and_ends_no_other_turn(
    rig: Rig, error: type[BaseException], is_async: bool
) -> None:
    tries: list[int] = []

    def plain() -> None:
        tries.append(1)
        _raise(error)

    async def waits() -> None:
        tries.append(1)
        _raise(error)

    async def has_tried() -> bool:
        return bool(tries)

    model = ScriptedModel([call("end"), "done"])
    app = agent(model, [tool(name="end")(waits if is_async else plain)])

    @app.agent(activate_on=START, updates="other")
    async def other(_ctx: Any) -> str:
        await until(has_tried)
        return "unharmed"

    result = await rig.run(app)
    assert result.outcome == "success"
    assert result.state == {"out": "done", "other": "unharmed"}
    [[how, text]] = results(model)
    assert how == "error"
    assert text.startswith("TOOL_ERROR: ")
    assert tries == [1]
    assert {turn.attempts for turn in await rig.runtime.reader.turns()} == {0}


@pytest.mark.parametrize("error", [GeneratorExit, Odd])
async def test_agent_that_raises_a_base_exception_fails_alone(rig: Rig, error: type[BaseException]) -> None:
    app = Heliograph("odd")

    @app.agent(activate_on=START)
    async def bad(_ctx: Any) -> None:
        raise error

    result = await rig.run(app)
    assert result.outcome == "failed"
    assert [turn.attempts for turn in await rig.runtime.reader.turns()] == [0]


async def test_calls_stop_when_their_turn_has_ended(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, ended = asyncio.Event(), list[str]()
    record = StepRecorder.record

    async def reject(self: StepRecorder, request: CallRequest, *args: Any, **options: Any) -> None:
        if request.tool == "quick":
            raise AgentFailed("the result was not taken", code="RESOURCE_EXHAUSTED")
        await record(self, request, *args, **options)

    monkeypatch.setattr(StepRecorder, "record", reject)

    async def slow() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("slow")

    async def quick() -> None:
        await begun.wait()

    app = agent(ScriptedModel([[call("slow", call_id="x1"), call("quick", call_id="x2")]]), [slow, quick])
    result = await rig.run(app)
    assert result.outcome == "failed"
    assert ended == ["slow"]


async def test_calls_beyond_the_limit_of_one_reply_do_not_start_and_return_errors(rig: Rig) -> None:
    made: list[int] = []

    @tool(effect="pure")
    def count(n: int) -> None:
        made.append(n)

    model = ScriptedModel([[call("count", {"n": n}, f"x{n}") for n in range(129)], "done"])
    result = await rig.run(agent(model, [count]))
    assert result.outcome == "success"
    assert made == []
    assert len(results(model)) == 129
    assert results(model)[0] == (
        "error",
        "one reply may have 128 calls, and this one has 129: none of them was made; call fewer",
    )


@pytest.mark.more
async def test_abandoned_plain_function_counts_against_concurrency_until_it_ends(rig: Rig) -> None:
    lock, another = threading.Lock(), threading.Event()
    now = most = made = 0

    @tool(effect="idempotent", concurrency=1, timeout_seconds=0.2, retries=1)
    def slow() -> str:
        nonlocal now, most, made
        with lock:
            now, made = now + 1, made + 1
            most, is_first = max(most, now), made == 1
        if is_first:
            another.wait(2)  # longer than its time and the delay before the next try
        another.set()
        with lock:
            now -= 1
        return "done"

    model = ScriptedModel([[call("slow", call_id="x1"), call("slow", call_id="x2")], "done"])
    await rig.run(agent(model, [slow]))
    assert (results(model), most, made) == (["done", "done"], 1, 3)


@pytest.mark.parametrize("message", ["bad \0 byte", "half \ud800", "x" * 5_000_000], ids=["nul", "surrogate", "huge"])
async def test_failed_tool_returns_an_error_to_the_model_for_any_message(rig: Rig, message: str) -> None:
    def fail() -> None:
        raise ToolFailed(message)

    model = ScriptedModel([call("fail"), "done"])
    result = await rig.run(agent(model, [fail]))
    assert result.outcome == "success"
    [(how, text)] = results(model)
    assert how == "error"
    assert text.startswith(f"TOOL_ERROR: {message[:4]}")
    assert "was done" not in text
    assert len(text) < 20_000


async def test_failure_of_a_call_after_two_cancellations_is_not_logged() -> None:
    """A call that swallows its cancellation fails after its caller was cancelled twice."""
    loop, logged, fails = asyncio.get_running_loop(), list[Any](), asyncio.Event()

    async def stubborn() -> Any:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await fails.wait()
        raise TurnLost("the turn is lost")

    running = asyncio.create_task(local_tools._run_concurrently([stubborn()]))
    handler = loop.get_exception_handler()
    loop.set_exception_handler(lambda _loop, context: logged.append(context["message"]))
    try:
        for _ in range(2):
            for _ in range(3):
                await asyncio.sleep(0)
            running.cancel()
        await asyncio.wait([running])
        assert running.cancelled()
        del running  # its exception refers to the future that would log
        fails.set()
        for _ in range(5):
            await asyncio.sleep(0)
        gc.collect()
    finally:
        loop.set_exception_handler(handler)
    assert logged == []
