"""Tools of a model: permissions, retries, concurrency, and results."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from heliograph import ScriptedModel, ToolContext, tool
from tests.runtime.kit import Rig
from tests.runtime.tools_kit import Script, app_of, called


async def test_functions_get_annotated_arguments_and_report_errors(rig: Rig) -> None:
    def double(n: int, ctx: ToolContext) -> Any:
        """Double."""
        return [n * ctx.deps["by"], ctx.agent, ctx.idempotency_key.endswith(f"/tools/{ctx.turn_id}/{ctx.call_id}")]

    async def fail(why: str) -> None:
        """Fail."""
        raise ValueError(why)

    script = Script([called("double", n=2), called("double", n="x"), called("fail", why="no"), called("nobody")])
    result = await rig.run(app_of(script, double, fail, deps={"by": 3}))
    assert result.state == {"out": "done"}
    fine, bad, failed, unknown = script.results
    assert fine == ([6, "worker", True], False)
    assert bad[1]
    assert "n: Input should be a valid integer" in bad[0]
    assert failed == ("TOOL_ERROR: ValueError: no", True)
    assert unknown == ("there is no tool nobody; there are double, fail", True)


async def test_tool_of_another_agent_does_not_run(rig: Rig) -> None:
    happened: list[str] = []

    def erase() -> None:
        """Erase."""
        happened.append("erased")

    def look() -> str:
        """Look."""
        return "seen"

    script = Script([called("erase"), called("look")])
    app = app_of(script, look)
    app.prompt_agent("other", "x", model=ScriptedModel(["done"]), on_request=True, tools=[erase])
    await rig.run(app)
    assert [is_error for _, is_error in script.results] == [True, False]
    assert happened == []
    assert script.offered == ["look"]


@pytest.mark.more
async def test_failed_or_late_attempt_is_retried_if_its_effect_allows_it(rig: Rig) -> None:
    tries: list[float] = []

    @tool(effect="pure", retries=2, timeout_seconds=0.3)
    async def flaky() -> str:
        """Flaky."""
        tries.append(1)
        if len(tries) == 1:
            raise OSError("gone")
        if len(tries) == 2:
            await asyncio.Event().wait()
        return "there"

    @tool(timeout_seconds=0.1)
    async def stuck() -> None:
        """Stuck."""
        await asyncio.Event().wait()

    script = Script([called("flaky"), called("stuck")])
    await rig.run(app_of(script, flaky, stuck))
    assert script.results == [("there", False), ("TOOL_TIMEOUT: it took longer than 0.1 s", True)]
    assert len(tries) == 3


async def test_call_that_raised_an_unrecoverable_exception_is_not_tried_again(rig: Rig) -> None:
    tries: list[int] = []

    class Final(Exception):
        recoverable = False

    @tool(effect="pure", retries=2)
    def forbidden() -> None:
        """Forbidden."""
        tries.append(1)
        raise Final("no such account")

    script = Script([called("forbidden")])
    await rig.run(app_of(script, forbidden))
    assert script.results == [("TOOL_ERROR: Final: no such account", True)]
    assert tries == [1]


async def test_concurrency_of_a_tool_is_limited_and_queueing_does_not_count_as_time(rig: Rig) -> None:
    now, most = 0, 0

    @tool(concurrency=2, timeout_seconds=0.4)
    async def careful(n: int) -> int:
        """Careful."""
        nonlocal now, most
        now, most = now + 1, max(most, now + 1)
        await asyncio.sleep(0.15)
        now -= 1
        return n

    script = Script([called("careful", n=n) for n in range(8)])
    await rig.run(app_of(script, careful))
    assert most == 2
    assert script.results == [(n, False) for n in range(8)]


async def test_failed_start_of_a_thread_frees_its_slot(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    refusals, start = list[str](), threading.Thread.start

    def start_later(thread: threading.Thread) -> None:
        if thread.name == "heliograph agent" and not refusals:
            refusals.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    @tool(concurrency=1)
    def careful(n: int) -> int:
        """Careful."""
        return n

    monkeypatch.setattr(threading.Thread, "start", start_later)
    script = Script([called("careful", n=1)], [called("careful", n=2)])
    await rig.run(app_of(script, careful))
    assert script.results == [("TOOL_ERROR: RuntimeError: can't start new thread", True), (2, False)]


async def test_too_large_result_returns_an_error_and_the_turn_continues(rig: Rig) -> None:
    def large() -> str:
        """Large."""
        return "x" * 2_000_000

    script = Script([called("large")])
    result = await rig.run(app_of(script, large))
    assert result.outcome == "success"
    [(message, is_error)] = script.results
    assert is_error
    assert message.startswith("RESULT_TOO_LARGE: it was done")


@pytest.mark.more
async def test_huge_result_is_rejected_without_blocking_the_process(rig: Rig) -> None:
    rows = [{"a": n, "b": str(n)} for n in range(1_500_000)]

    @tool(effect="pure")
    async def huge() -> Any:
        """Huge."""
        return rows

    gaps: list[float] = []

    async def tick() -> None:
        while True:
            before = time.thread_time()  # of this thread alone: the machine may be busy with other work
            await asyncio.sleep(0.01)
            gaps.append(time.thread_time() - before)

    script = Script([called("huge")])
    ticking = asyncio.create_task(tick())
    result = await rig.run(app_of(script, huge))
    ticking.cancel()
    assert result.outcome == "success"
    [(message, is_error)] = script.results
    assert is_error
    assert "bytes, which is the limit" in message
    assert max(gaps) < 1.5  # written as JSON it takes several seconds
