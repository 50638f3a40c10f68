"""Turns of model agents after failures of a model or a server: usage, retries and endings."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from heliograph import tool
from heliograph.errors import HarnessError, ToolFailed
from heliograph.models import ModelReply, ScriptedModel, ToolCall
from heliograph.tools import MCPServer
from tests.runtime.human_task_kit import open_tasks
from tests.runtime.kit import Rig, names, one, until
from tests.runtime.loop_kit import agent, call, payloads

MCP = str(Path(__file__).parent.parent / "reach")


def reply(*calls: ToolCall, text: str = "") -> ModelReply:
    return ModelReply(text, tool_calls=calls, input_tokens=7, output_tokens=5)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heliograph.policy.retry.RetryPolicy.delay_seconds", lambda *_: 0.05)


@pytest.mark.more
@pytest.mark.usefixtures("soon")
async def test_earlier_deferrals_do_not_reduce_the_attempts_to_reach_a_server(rig: Rig, tmp_path: Path) -> None:
    away, program = tmp_path / "away", tmp_path / "server.py"
    program.write_text(
        f"from pathlib import Path\nif Path({str(away)!r}).exists(): raise SystemExit(1)\nimport mcp_server"
    )
    server = MCPServer([sys.executable, str(program)], name="own", env={"PYTHONPATH": MCP})
    busy = HarnessError("busy", recoverable=True)
    model = ScriptedModel([busy, busy, call("ask_human", {"question": "sure?"}), "done"])
    app = agent(model, [server], asks_human=True, retries=2)
    run_id = await rig.start(app)
    async with rig.serving(app):
        (task,) = await open_tasks(rig)
    await rig.runtime.toolbox.close()  # as another process begins
    away.touch()
    await rig.client.answer(task.turn_id, task.call_id, "yes")

    async def is_deferred() -> bool:
        query = "select 1 from heliograph.agent_turns where project_id = $1 and defer_count = 3"
        return bool(await rig.fetch(query, rig.runtime.settings.project))

    async with rig.serving(app):
        await until(is_deferred)
        away.unlink()
        signals = await rig.ended(run_id)
    assert one(signals, "workflow:end")["state"] == {"out": "done"}


async def test_turn_is_deferred_when_a_provider_requests_a_delay_of_years(rig: Rig) -> None:
    rig.ends_with_open_work = True
    app = agent(ScriptedModel([HarnessError("later", recoverable=True, retry_after_seconds=1e12)]))
    await rig.start(app)

    async def is_deferred() -> bool:
        query = (
            "select 1 from heliograph.agent_inbox where project_id = $1 and next_retry_at > now() + interval '300 days'"
        )
        return bool(await rig.fetch(query, rig.runtime.settings.project))

    async with rig.serving(app):
        await until(is_deferred)


@pytest.mark.more
@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("options", [{}, {"budget": {"tokens": 10_000_000}}], ids=["", "budget"])
async def test_reply_too_large_to_store_is_requested_again(rig: Rig, options: Any) -> None:
    @tool(effect="pure")
    def write(text: str) -> int:
        return len(text)

    huge = reply(call("write", {"text": "x" * 1_100_000}))
    model = ScriptedModel([huge, reply(call("write", {"text": "short"})), "done"])
    result = await rig.run(agent(model, [write], **options))
    assert (result.outcome, result.state) == ("success", {"out": "done"})


async def test_reply_that_remains_too_large_fails_its_turn_with_the_reason(rig: Rig) -> None:
    @tool(effect="pure")
    def write(text: str) -> int:
        return len(text)

    result = await rig.run(agent(ScriptedModel([reply(call("write", {"text": "x" * 1_100_000}))]), [write], retries=0))
    failure = one(result.signals, "agent:failed")["error"]
    assert (failure["code"], failure["recoverable"]) == ("RESOURCE_EXHAUSTED", True)
    assert "max_output_tokens" in failure["message"]
    assert one(result.signals, "workflow:end")["metrics"]["usage"] == {"inputTokens": 7, "outputTokens": 5}


async def test_failed_turn_reports_the_usage_of_its_model(rig: Rig) -> None:
    @tool(effect="pure")
    def look() -> None:
        pass

    model = ScriptedModel([reply(call("look")), reply(call("look")), HarnessError("no")])
    result = await rig.run(agent(model, [look]))
    assert result.outcome == "failed"
    assert one(result.signals, "workflow:end")["metrics"]["usage"] == {"inputTokens": 14, "outputTokens": 10}


async def test_resumed_turn_counts_the_usage_of_its_model_once(rig: Rig) -> None:
    model = ScriptedModel([reply(call("ask_human", {"question": "sure?"})), HarnessError("no")])
    app = agent(model, asks_human=True)
    run_id = await rig.start(app)
    async with rig.serving(app):
        (task,) = await open_tasks(rig)
        await rig.client.answer(task.turn_id, task.call_id, "yes")
        signals = await rig.ended(run_id)
    assert one(signals, "workflow:end")["metrics"]["usage"] == {"inputTokens": 7, "outputTokens": 5}


async def test_limit_before_any_output_keeps_the_state(rig: Rig) -> None:
    @tool(effect="pure")
    def look() -> None:
        raise ToolFailed("nothing there")

    app = agent(ScriptedModel([reply(call("look"))] * 2), [look], max_steps=2)
    result = await rig.run(app, {"out": "what was there"})
    assert result.state == {"out": "what was there"}
    assert one(result.signals, "terminated")["status"] == "partial"
    assert result.outcome == "partial"
    assert names(result.signals).count("agent:completed") == 1
    assert payloads(result.signals, "state:out:changed") == []
