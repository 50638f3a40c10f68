"""MCP servers as tools of turns: one shared process that dies, is unreachable, and returns."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from heliograph.models import ScriptedModel
from heliograph.tools import MCPServer
from tests.reach.mcp_http_server import OWN
from tests.runtime.kit import Rig, one, until
from tests.runtime.loop_kit import agent, results
from tests.runtime.tools_kit import called


@pytest.mark.more
async def test_turns_share_one_mcp_server_process_with_only_its_allowed_environment(rig: Rig) -> None:
    server = MCPServer([sys.executable, OWN], name="own", tools=["pid", "add"], prefix="own_", trusted=True)
    pids: list[Any] = []
    for _ in range(2):
        script = ScriptedModel([[called("own_pid"), called("own_add", a=1, b="x"), called("own_die")], "done"])
        await rig.run(agent(script, [server]))
        pid, bad, unknown = results(script)
        assert sorted(spec.name for spec in script.requests[-1].tools) == ["own_add", "own_pid"]
        assert bad[0] == "error"
        assert "b: " in bad[1]
        assert "there is no tool own_die" in unknown[1]
        pids.append(pid["result"])
    assert pids[0] == pids[1]


@pytest.mark.more
async def test_server_that_dies_during_a_call_is_an_error_for_the_model_and_is_restarted(rig: Rig) -> None:
    server = MCPServer([sys.executable, OWN], name="own", timeout_seconds=20, trusted=True)
    script = ScriptedModel([called("die"), called("add", a=1, b=2), "done"])
    result = await rig.run(agent(script, [server]))
    assert result.outcome == "success"
    assert results(script)[0][1].startswith("IN_DOUBT: the connection to MCP server own was lost during die")
    assert results(script)[1] == {"result": 3}


@pytest.mark.more
async def test_turn_with_an_unreachable_server_is_deferred_and_continues_when_it_returns(
    rig: Rig, tmp_path: Path
) -> None:
    program = tmp_path / "server.py"
    program.write_text("raise SystemExit(1)")
    server = MCPServer(
        [sys.executable, str(program)], name="away", trusted=True, env={"PYTHONPATH": str(Path(OWN).parent)}
    )
    script = ScriptedModel([called("add", a=1, b=2), "done"])
    app = agent(script, [server], retries=20)
    run_id = await rig.start(app)

    async def is_deferred() -> bool:
        query = "select 1 from heliograph.agent_inbox where project_id = $1 and retry_count > 0"
        return bool(await rig.fetch(query, rig.runtime.settings.project))

    async with rig.serving(app):
        await until(is_deferred)
        program.write_text("import mcp_server")
        await rig.ended(run_id)
    assert results(script) == [{"result": 3}]


async def test_two_tools_of_one_name_are_rejected_before_the_first_model_call(rig: Rig) -> None:
    def add(a: int) -> int:
        """Add."""
        return a

    script = ScriptedModel([called("add", a=1), "done"])
    app = agent(script, [add, MCPServer([sys.executable, OWN], name="own")])
    result = await rig.run(app)
    failure = one(result.signals, "agent:failed")["error"]
    assert "two tools named add" in failure["message"]
