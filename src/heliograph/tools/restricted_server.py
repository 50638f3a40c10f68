"""An MCP server of which an agent may use only some tools, whatever the server offers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from heliograph.definitions.tool import Tool
from heliograph.tools.mcp import MCPServer, safe_name
from heliograph.tools.mcp_connection import Connection
from heliograph.tools.mcp_decoding import OfferedTool


def _always(*names: str) -> bool:
    return True


def _never(*names: str) -> bool:
    return False


@dataclass(frozen=True, eq=False)
class RestrictedServer(MCPServer):
    """A server with rules that hold for each tool it offers, now and later.

    permits, approves: functions of the names of a tool: that of the server, that with the prefix, and both with the server's label.
        They return whether agents may use it, and whether each of its calls requires an approval.
    """

    permits: Callable[..., bool] = _always
    approves: Callable[..., bool] = _never

    def allowed(self, offered: Sequence[OfferedTool], connection: Connection) -> list[Tool]:
        """Return the permitted tools. Raises the errors of `MCPServer.allowed`."""
        tools = []
        for each in super().allowed(offered, connection):
            own = each.name.removeprefix(safe_name(self.prefix))
            names = (own, each.name, *(f"{self.label}{mark}{own}" for mark in "./:_"))
            if self.permits(*names):
                tools.append(replace(each, approval=True) if self.approves(*names) else each)
        return tools


def restricted(server: MCPServer, permits: Callable[..., bool], approves: Callable[..., bool]) -> RestrictedServer:
    """Return a server with rules for its tools."""
    options: dict[str, Any] = {each.name: getattr(server, each.name) for each in fields(MCPServer)}
    return RestrictedServer(**options, permits=permits, approves=approves)
