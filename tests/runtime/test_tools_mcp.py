"""MCP servers as tools of turns: one shared process that dies, is unreachable, and returns."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from heliograph import MCPServer
from tests.reach.mcp_http_server import OWN
from tests.runtime.kit import Rig, one, until
from tests.runtime.tools_kit import Script, app_of, called


@pytest.mark.more
async def test_turns_share_one_mcp_server_process_with_only_its_allowed_environment(rig: Rig) -> None:
    server = MCPServer([sys.executable, OWN], name="own", tools=["pid", "add"], prefix="own_", trusted=True)
    pids: list[Any] = []
    for _ in range(2):
        script = Script([called("own_pid"), called("own_add", a=1, b="x"), called("own_die")])
        await rig.run(app_of(script, server))
        (pid, bad, unknown) = script.results
        assert sorted(script.offered) == ["own_add", "own_pid"]
        assert bad[1]
        assert "b: " in bad[0]
        assert "there is no tool own_die" in unknown[0]
        pids.append(pid[0]["result"])
    assert pids[0] == pids[1]


@pytest.mark.more
async def test_server_that_dies_during_a_call_is_an_error_for_the_model_and_is_restarted(rig: Rig) -> None:
    server = MCPServer([sys.executable, OWN], name="own", timeout_seconds=20, trusted=True)
    script = Script([called("die")], [called("add", a=1, b=2)])
    result = await rig.run(app_of(script, server))
    assert result.outcome == "success"
    assert script.results[0][0].startswith("IN_DOUBT: the connection to MCP server own was lost during die")
    assert script.results[1] == ({"result": 3}, False)


@pytest.mark.more
async def test_turn_with_an_unreachable_server_is_deferred_and_continues_when_it_returns(
    rig: Rig, tmp_path: Path
) -> None:
    program = tmp_path / "server.py"
    program.write_text("raise SystemExit(1)")
    server = MCPServer(
        [sys.executable, str(program)], name="away", trusted=True, env={"PYTHONPATH": str(Path(OWN).parent)}
    )
    script = Script([called("add", a=1, b=2)])
    app = app_of(script, server, retries=20)
    run_id = await rig.start(app)

    async def is_deferred() -> bool:
        query = "select 1 from heliograph.agent_inbox where project_id = $1 and retry_count > 0"
        return bool(await rig.fetch(query, rig.runtime.settings.project))

    async with rig.serving(app):
        await until(is_deferred)
        program.write_text("import mcp_server")
        await rig.ended(run_id)
    assert script.results == [({"result": 3}, False)]


async def test_two_tools_of_one_name_are_rejected_before_the_first_model_call(rig: Rig) -> None:
    def add(a: int) -> int:
        """Add."""
        return a

    script = Script([called("add", a=1)])
    app = app_of(script, add, MCPServer([sys.executable, OWN], name="own"))
    result = await rig.run(app)
    failure = one(result.signals, "agent:failed")["error"]
    assert "two tools named add" in failure["message"]
