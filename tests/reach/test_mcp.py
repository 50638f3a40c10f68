"""MCP servers as tools: real servers, over stdio and over HTTP, that die, come back, and are not there."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from heliograph import Tool
from heliograph.errors import HarnessError, InvalidInput, SetupError, StepInDoubt, ToolFailed
from heliograph.tools import MCPServer
from heliograph.tools.toolbox import Toolbox
from tests.reach.mcp_http_server import OWN, HttpServer

ODD = str(Path(__file__).with_name("mcp_odd.py"))


def own(**options: Any) -> MCPServer:
    return MCPServer([sys.executable, OWN], name="own", **options)


def odd(*arguments: str, **options: Any) -> MCPServer:
    return MCPServer([sys.executable, ODD, *arguments], name="odd", **options)


def by_name(tools: Iterable[Tool]) -> dict[str, Tool]:
    return {tool.name: tool for tool in tools}


async def gone(pid: int) -> None:
    """Return when there is no such process."""
    async with asyncio.timeout(60):
        while True:
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                return
            await asyncio.sleep(0.02)


async def test_public_server_is_used_and_its_errors_are_reported() -> None:
    async with MCPServer([sys.executable, "-m", "mcp_server_time"], name="time").open_tools() as tools:
        found = by_name(tools)
        assert set(found) == {"get_current_time", "convert_time"}
        answer = await found["get_current_time"](timezone="UTC")
        assert answer["timezone"] == "UTC"
        with pytest.raises(ToolFailed, match="Nowhere"):
            await found["get_current_time"](timezone="Nowhere")


@pytest.mark.more
async def test_result_is_structured_content_else_its_text_else_all_parts() -> None:
    async with own().open_tools() as tools:
        found = by_name(tools)
        assert await found["add"](a=1, b=2) == {"result": 3}
        assert await found["text"]() == "plain"
        assert [part["type"] for part in (await found["parts"]())["content"]] == ["text", "image"]


@pytest.mark.more
@pytest.mark.proves("S13")
async def test_program_gets_its_own_environment_and_none_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELIOGRAPH_DATABASE_URL", "postgresql://somebody:secret@host/db")
    server = own(env={"API_KEY": "hidden"})
    assert "hidden" not in repr(server)
    async with server.open_tools() as tools:
        names = (await by_name(tools)["env_names"]())["result"]
    assert "API_KEY" in names
    assert "HELIOGRAPH_DATABASE_URL" not in names


@pytest.mark.more
@pytest.mark.proves("S13")
async def test_secret_is_resolved_only_for_the_server() -> None:
    server = own(env={"KEY": "Bearer secret://crm"}, secrets=lambda name: f"the value of {name}")
    assert "the value" not in repr(server)
    async with server.open_tools() as tools:
        variable = by_name(tools)["variable"]
        assert await variable(name="KEY") == {"result": "Bearer the value of crm"}
    with pytest.raises(SetupError, match="no secret crm"):
        async with own(env={"KEY": "secret://crm"}).open_tools():
            pass


@pytest.mark.more
async def test_author_selects_tools_prefixes_them_and_sets_their_effects() -> None:
    server = own(
        tools=["add", "pid", "text"], prefix="own_", trusts_annotations=True, approval=["text"], in_doubt="fail"
    )
    async with server.open_tools() as tools:
        found = by_name(tools)
    assert set(found) == {"own_add", "own_pid", "own_text"}
    assert [found[f"own_{n}"].effect for n in ("add", "pid", "text")] == ["idempotent", "pure", "once"]
    assert [found[f"own_{n}"].needs_approval({}) for n in ("add", "text")] == [False, True]
    assert found["own_add"].in_doubt == "fail"
    async with own(tools=["add"], effects={"add": "pure"}).open_tools() as tools:
        assert tools[0].effect == "pure"
    async with own(tools=["add"]).open_tools() as tools:
        assert tools[0].effect == "once"  # the server's own annotations are not trusted by default


@pytest.mark.more
async def test_name_of_a_missing_tool_is_rejected() -> None:
    with pytest.raises(InvalidInput, match="has no tool ad; it has add") as refused:
        async with own(tools=["ad"]).open_tools():
            pass
    assert refused.value.code == "unknown_tool"


@pytest.mark.more
async def test_idle_program_that_died_is_restarted_and_ended_at_close() -> None:
    async with own().open_tools() as tools:
        found = by_name(tools)
        first = (await found["pid"]())["result"]
        os.kill(first, signal.SIGKILL)
        await gone(first)
        async with asyncio.timeout(60):
            while not tools._connection.has_changed:  # noqa: ASYNC110  the end of its output arrives a little later
                await asyncio.sleep(0.01)
        second = (await found["pid"]())["result"]
        assert second != first
        assert (await found["pid"]())["result"] == second  # one program for all calls
    await gone(second)


@pytest.mark.more
async def test_connection_lost_during_a_once_call_is_in_doubt(tmp_path: Path) -> None:
    async with own().open_tools() as tools:
        with pytest.raises(StepInDoubt, match="lost during die"):
            await by_name(tools)["die"]()
    async with own(effect="idempotent").open_tools() as tools:
        assert await by_name(tools)["die"](path=str(tmp_path / "died")) == {"result": "lived"}  # made once more
        with pytest.raises(HarnessError, match="twice") as lost:
            await by_name(tools)["die"]()
    assert (lost.value.code, lost.value.recoverable) == ("MCP_UNAVAILABLE", True)


@pytest.mark.more
async def test_cancelled_call_does_not_wait_for_a_silent_server() -> None:
    async with own().open_tools() as tools:
        found = by_name(tools)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await found["sleep"]()
        assert await found["add"](a=1, b=2) == {"result": 3}  # and the connection is as good as before


@pytest.mark.more
async def test_http_server_may_restart(http: HttpServer) -> None:
    await http.start()
    server = MCPServer(url=http.url, effect="idempotent", headers={"authorization": "hidden"})
    async with server.open_tools(http.egress) as tools:
        found = by_name(tools)
        assert await found["add"](a=1, b=2) == {"result": 3}
        http.kill()
        with pytest.raises(HarnessError, match=r"cannot be used") as away:
            await found["add"](a=1, b=2)
        assert (away.value.code, away.value.recoverable) == ("NETWORK_ERROR", True)
        await http.start()
        assert await found["add"](a=1, b=2) == {"result": 3}


@pytest.mark.more
async def test_unreachable_server_and_missing_program_raise_different_errors(http: HttpServer) -> None:
    with pytest.raises(HarnessError, match="cannot be used") as away:
        async with MCPServer(url=http.url).open_tools(http.egress):
            pass
    assert away.value.recoverable
    with pytest.raises(SetupError, match="cannot be started") as missing:
        async with MCPServer(["/no/such/program"]).open_tools():
            pass
    assert missing.value.code == "no_program"
    with pytest.raises(HarnessError, match="did not respond in time"):
        async with MCPServer([sys.executable, "-c", "import signal; signal.pause()"], connect_seconds=0.5).open_tools():
            pass


async def test_error_response_with_any_code_is_no_lost_connection() -> None:
    async with odd().open_tools() as tools:
        found = by_name(tools)
        first = await found["pid"]()
        slow = asyncio.create_task(found["transfer"]())
        with pytest.raises(Exception, match="rate limit exceeded") as limited:
            await found["limited"]()
        assert not isinstance(limited.value, StepInDoubt | HarnessError)
        assert await found["echo"]() == "echo"
        assert await slow == "transferred"  # and the call beside it is none the worse
        assert await found["pid"]() == first


async def test_invalid_tools_are_omitted_and_the_others_remain(caplog: Any) -> None:
    async with odd().open_tools() as tools:
        assert set(by_name(tools)) == {"echo", "transfer", "limited", "pid", "change", "a_b"}
        assert by_name(tools)["echo"].parameters == {"type": "object", "properties": {}}
        assert await by_name(tools)["a_b"]() == "a.b"
    for name in ("a/b", "xxx", "final_result", "pattern", "reference"):
        assert f"tool {name}" in caplog.text


@pytest.mark.parametrize(
    "named", [["a.b", "a/b"], ["x" * 65], ["final_result"], ["pattern"], ["reference"]], ids=lambda names: names[0][:9]
)
async def test_invalid_tool_selected_by_name_is_rejected(named: list[str]) -> None:
    with pytest.raises(InvalidInput):
        async with odd(tools=named).open_tools():
            pass


async def test_tool_list_is_reread_on_notification_or_reconnection(tmp_path: Path) -> None:
    toolbox = Toolbox()
    for is_notified in (True, False):
        server = odd(str(tmp_path / f"changed-{is_notified}"))
        before = by_name(await toolbox.tools_of(server))
        assert {*by_name(await toolbox.tools_of(server)).values()} == {*before.values()}  # the same, not only alike
        if is_notified:
            await before["change"]()
        else:
            pid = int(await before["pid"]())
            (tmp_path / f"changed-{is_notified}").touch()
            os.kill(pid, signal.SIGKILL)
            await gone(pid)
        async with asyncio.timeout(60):
            while True:
                if [tool.name for tool in await toolbox.tools_of(server)] == ["newer"]:
                    break
                await asyncio.sleep(0.02)
    await toolbox.close()


async def test_unreadable_tool_list_keeps_the_earlier_one(tmp_path: Path, caplog: Any) -> None:
    away = tmp_path / "away"
    start = ["/bin/sh", "-c", f'test -e "{away}" && exit 1; exec "{sys.executable}" "{ODD}"']
    toolbox = Toolbox()
    server = MCPServer(start, name="odd", connect_seconds=5)
    before = list(await toolbox.tools_of(server))
    pid = int(await by_name(before)["pid"]())
    away.touch()
    os.kill(pid, signal.SIGKILL)
    await gone(pid)
    async with asyncio.timeout(60):
        while "stay as they were" not in caplog.text:  # as soon as the loss is noticed
            assert list(await toolbox.tools_of(server)) == before
            await asyncio.sleep(0.02)
    assert list(await toolbox.tools_of(server)) == before
    away.unlink()
    assert await by_name(before)["echo"]() == "echo"
    await toolbox.close()


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({}, "required_field"),
        ({"command": ["x"], "url": "http://x"}, "required_field"),
        ({"command": "server --stdio"}, "wrong_type"),
        ({"url": "file:///etc"}, "invalid_url"),
        ({"url": "https://good.example@evil.example/mcp"}, "invalid_url"),
        ({"url": "http://2130706433/mcp"}, "invalid_url"),
        ({"url": "http://["}, "invalid_url"),
        ({"url": "http://x", "tools": "add"}, "wrong_type"),
        ({"url": "http://x", "effect": "transactional"}, "invalid_enum"),
        ({"url": "http://x", "prefix": "a" * 70}, "invalid_identifier"),
        ({"url": "http://x", "timeout_seconds": 0}, "out_of_range"),
    ],
)
def test_invalid_server_definition_is_rejected(options: dict[str, Any], code: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        MCPServer(**options)
    assert refused.value.code == code
