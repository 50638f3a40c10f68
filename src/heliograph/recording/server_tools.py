"""The tools of tool servers, as far as recorded calls name them: a check or a replay from the ledger does not reach the servers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from heliograph.definitions.agent import AgentSpec
from heliograph.definitions.tool import Tool
from heliograph.records import Wait
from heliograph.tools.mcp import MCPServer
from heliograph.turn.call_id import CallId
from heliograph.types import Json


class ServerTools:
    """The tools of the servers of an application. A toolbox keeps each of them, so that it binds each one once."""

    def __init__(self) -> None:
        self._tools: dict[tuple[int, str], Tool | None] = {}

    def of(self, spec: AgentSpec, calls: Iterable[Wait]) -> dict[int, list[Tool]]:
        """The tools of each server of an agent by its identity, as far as calls name them.

        A server that no call names has one, because a turn also reads the descriptions of the tools that it does not call.
        """
        servers: list[Any] = [each for each in spec.tools if not isinstance(each, Tool)]
        if not servers:
            return {}
        own = {tool.name for tool in spec.tools if isinstance(tool, Tool)}
        names = {wait.tool for wait in calls if _is_of_tool(wait)} - own
        found: list[list[Tool]] = [[] for _ in servers]
        for name in sorted(names):
            offered = [self._tool_of(server, name) for server in servers]
            n = next((n for n, tool in enumerate(offered) if tool is not None), 0)
            if (tool := offered[n]) is not None:
                found[n].append(tool)
        return {id(server): found[n] or [self._uncalled(server)] for n, server in enumerate(servers)}

    def _tool_of(self, server: Any, name: str) -> Tool | None:
        """The tool of a server that a call names, without its description and schema; None if the server has no tool of this name."""
        key = id(server), name
        if key not in self._tools:
            self._tools[key] = server.tool_called(name) if isinstance(server, MCPServer) else _stub_of(server, name)
        return self._tools[key]

    def _uncalled(self, server: Any) -> Tool:
        """A tool of a server that no call names."""
        key = id(server), ""
        tool = self._tools[key] = self._tools.get(key) or _stub_of(server, f"uncalled_{len(self._tools)}")
        return tool


def _is_of_tool(wait: Wait) -> bool:
    """Whether a model or a plan called a function, or a person is asked about such a call."""
    parsed = CallId.parse(wait.call_id)
    if parsed is None or parsed.is_model_call:
        return False
    return wait.kind == "inline" or (wait.kind == "human" and bool(parsed.follow_up))


def _stub_of(server: Any, name: str) -> Tool:
    approval: Any = getattr(server, "approval", False)
    return Tool(name, _unreachable, parameters={"type": "object"}, trusted=bool(getattr(server, "trusted", True)),
                approval=approval if isinstance(approval, bool) or callable(approval) else name in approval)  # fmt: skip


async def _unreachable(**arguments: Json) -> Json:
    raise AssertionError("a check or a replay runs no tool")
