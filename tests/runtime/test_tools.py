"""Tools of a model: permissions, retries, concurrency, and results."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from heliograph import ToolContext, tool
from heliograph.models import ScriptedModel
from tests.runtime.kit import Rig
from tests.runtime.loop_kit import agent, results
from tests.runtime.tools_kit import called


async def test_functions_get_annotated_arguments_and_report_errors(rig: Rig) -> None:
    def double(n: int, ctx: ToolContext) -> Any:
        """Double."""
        return [n * ctx.deps["by"], ctx.agent, ctx.idempotency_key.endswith(f"/looping/{ctx.turn_id}/{ctx.call_id}")]

    async def fail(why: str) -> None:
        """Fail."""
        raise ValueError(why)

    script = ScriptedModel(
        [[called("double", n=2), called("double", n="x"), called("fail", why="no"), called("nobody")], "done"]
    )
    result = await rig.run(agent(script, [double, fail], deps={"by": 3}))
    assert result.state == {"out": "done"}
    fine, bad, failed, unknown = results(script)
    assert fine == [6, "worker", True]
    assert bad[0] == "error"
    assert "n: Input should be a valid integer" in bad[1]
    assert failed == ("error", "TOOL_ERROR: ValueError: no")
    assert unknown == ("error", "there is no tool nobody; there are double, fail")


async def test_tool_of_another_agent_does_not_run(rig: Rig) -> None:
    happened: list[str] = []

    def erase() -> None:
        """Erase."""
        happened.append("erased")

    def look() -> str:
        """Look."""
        return "seen"

    script = ScriptedModel([[called("erase"), called("look")], "done"])
    app = agent(script, [look])
    app.prompt_agent("other", "x", model=ScriptedModel(["done"]), on_request=True, tools=[erase])
    await rig.run(app)
    (refused, _), seen = results(script)
    assert (refused, seen) == ("error", "seen")
    assert happened == []
    assert [spec.name for spec in script.requests[-1].tools] == ["look"]


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

    script = ScriptedModel([[called("flaky"), called("stuck")], "done"])
    await rig.run(agent(script, [flaky, stuck]))
    assert results(script) == ["there", ("error", "TOOL_TIMEOUT: it took longer than 0.1 s")]
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

    script = ScriptedModel([called("forbidden"), "done"])
    await rig.run(agent(script, [forbidden]))
    assert results(script) == [("error", "TOOL_ERROR: Final: no such account")]
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

    script = ScriptedModel([[called("careful", n=n) for n in range(8)], "done"])
    await rig.run(agent(script, [careful]))
    assert most == 2
    assert results(script) == list(range(8))


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
    script = ScriptedModel([called("careful", n=1), called("careful", n=2), "done"])
    await rig.run(agent(script, [careful]))
    assert results(script) == [("error", "TOOL_ERROR: RuntimeError: can't start new thread"), 2]


async def test_too_large_result_returns_an_error_and_the_turn_continues(rig: Rig) -> None:
    def large() -> str:
        """Large."""
        return "x" * 2_000_000

    script = ScriptedModel([called("large"), "done"])
    result = await rig.run(agent(script, [large]))
    assert result.outcome == "success"
    [(how, message)] = results(script)
    assert how == "error"
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

    script = ScriptedModel([called("huge"), "done"])
    ticking = asyncio.create_task(tick())
    result = await rig.run(agent(script, [huge]))
    ticking.cancel()
    assert result.outcome == "success"
    [(how, message)] = results(script)
    assert how == "error"
    assert "bytes, which is the limit" in message
    assert max(gaps) < 1.5  # written as JSON it takes several seconds
