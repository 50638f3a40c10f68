"""The public MCP reference servers as real peers of an agent: each call recorded, each error reported, each result framed.

mcp-server-time comes with the tests. The others are tried where their programs are on the PATH: mcp-server-git from PyPI,
and @modelcontextprotocol/server-everything and server-filesystem from npm.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from heliograph import Heliograph
from heliograph.config import Settings
from heliograph.models import ScriptedModel, ToolCall, ToolMessage
from heliograph.runtime import open_runtime
from heliograph.tools import MCPServer
from tests.runtime.loop_kit import results

pytestmark = pytest.mark.timeout(120)


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not on the PATH")
    return found


async def results_of(database_url: str, server: MCPServer, *calls: ToolCall, **options: Any) -> list[Any]:
    """The results of these calls for the model, one step each, from a server in a process of its own."""
    model = ScriptedModel([*([call] for call in calls), "done"])
    app = Heliograph("peers")
    app.prompt_agent(
        "asker", "Ask.", model=model, activate_on=["workflow:start"], updates="out", tools=[server], **options
    )
    async with open_runtime(Settings(database_url=database_url)) as runtime:
        result = await runtime.run(app.workflow)
    assert (result.outcome, result.state) == ("success", {"out": "done"})
    assert all(m.is_untrusted for m in model.requests[-1].messages if isinstance(m, ToolMessage) and not m.is_error)
    return results(model)


def called(calls: Sequence[tuple[str, dict[str, Any]]]) -> list[ToolCall]:
    return [ToolCall(f"x{n}", name, arguments) for n, (name, arguments) in enumerate(calls)]


@pytest.mark.more
async def test_time_server_answers_converts_and_rejects(database_url: str) -> None:
    server = MCPServer([sys.executable, "-m", "mcp_server_time"], name="time", effect="pure")
    convert = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
    now, converted, wrong, short = await results_of(database_url, server, *called([
        ("get_current_time", {"timezone": "Europe/Oslo"}), ("convert_time", convert),
        ("convert_time", {**convert, "time": "noon"}), ("convert_time", {"time": "12:00"}),
    ]))  # fmt: skip
    assert now["timezone"] == "Europe/Oslo"
    assert converted["time_difference"] == "+9.0h"
    assert wrong[0] == "error"
    assert short[1].startswith("the arguments of convert_time are invalid")  # the server received no call


async def test_git_server_reads_a_repository_and_writes_to_it(database_url: str, tmp_path: Path) -> None:
    server = MCPServer([program("mcp-server-git"), "-r", str(tmp_path)], name="git", effect="pure")
    await asyncio.to_thread(subprocess.run, ["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "a.txt").write_text("text")
    repo = {"repo_path": str(tmp_path)}
    status, added, after = await results_of(database_url, server, *called([
        ("git_status", repo), ("git_add", {**repo, "files": ["a.txt"]}), ("git_status", repo),
    ]))  # fmt: skip
    assert "Untracked files" in str(status)
    assert "staged" in str(added)
    assert "new file:   a.txt" in str(after)


async def test_everything_server_has_all_kinds_of_content(database_url: str) -> None:
    server = MCPServer([program("mcp-server-everything"), "stdio"], name="everything", effect="pure")
    echo, added, structured, image, links, wrong, env = await results_of(database_url, server, *called([
        ("echo", {"message": "hi"}), ("get-sum", {"a": 2, "b": 3}), ("get-structured-content", {"location": "Chicago"}),
        ("get-tiny-image", {}), ("get-resource-links", {"count": 2}), ("echo", {}), ("get-env", {}),
    ]))  # fmt: skip
    assert (echo, added) == ("Echo: hi", "The sum of 2 and 3 is 5.")
    assert set(structured) == {"temperature", "conditions", "humidity"}
    assert "image" in [part["type"] for part in image["content"]]
    assert [part["type"] for part in links["content"]][1:] == ["resource_link", "resource_link"]
    assert wrong[1].startswith("the arguments of echo are invalid")
    assert "PGPASSWORD" not in env
    assert "HELIOGRAPH" not in env


async def test_task_only_tool_is_not_offered() -> None:
    async with MCPServer([program("mcp-server-everything"), "stdio"], name="everything").open_tools() as tools:
        names = {tool.name for tool in tools}
    assert "echo" in names
    assert "simulate-research-query" not in names


async def test_filesystem_server_is_confined_to_its_folder_and_declares_idempotent_tools(
    database_url: str, tmp_path: Path
) -> None:
    server = MCPServer([program("mcp-server-filesystem"), str(tmp_path)], name="files", trusts_annotations=True)
    async with server.open_tools() as tools:
        effects = {tool.name: tool.effect for tool in tools}
    assert (effects["read_text_file"], effects["write_file"], effects["move_file"]) == ("pure", "idempotent", "once")
    wrote, read, outside = await results_of(database_url, server, *called([
        ("write_file", {"path": str(tmp_path / "b.txt"), "content": "x"}),
        ("read_text_file", {"path": str(tmp_path / "b.txt")}), ("read_text_file", {"path": "/etc/passwd"}),
    ]))  # fmt: skip
    assert "Successfully wrote" in str(wrote)
    assert read == {"content": "x"}
    assert "Access denied" in outside[1]
