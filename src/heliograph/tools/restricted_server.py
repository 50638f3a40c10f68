"""An MCP server of which an agent may use only some tools, whatever the server offers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from heliograph.definitions.tool import Tool
from heliograph.error_text import safe_repr
from heliograph.tools.mcp import MCPServer, safe_name
from heliograph.tools.mcp_connection import Connection
from heliograph.tools.mcp_decoding import OfferedTool

log = logging.getLogger("heliograph.tools")


def _always(*names: str) -> bool:
    return True


def _never(*names: str) -> bool:
    return False


@dataclass(frozen=True, eq=False)
class RestrictedServer(MCPServer):
    """A server with rules that hold for each tool it offers, now and later.

    permits, approves: functions of the names of a tool: that of the server, that with the prefix, and both with the server's label.
        They return whether agents may use it, and whether each of its calls requires an approval.
    chooses: the same for the tools that an agent lists; it has only these. A server without any of them logs a warning.
    """

    permits: Callable[..., bool] = _always
    approves: Callable[..., bool] = _never
    chooses: Callable[..., bool] = _always

    def allowed(self, offered: Sequence[OfferedTool], connection: Connection) -> list[Tool]:
        """Return the permitted tools. Raises the errors of `MCPServer.allowed`."""
        found = [(each, names_of(self, each)) for each in super().allowed(offered, connection)]
        chosen = [(each, names) for each, names in found if self.chooses(*names)]
        if found and not chosen:
            log.warning("MCP server %s has none of the tools that the agent lists; it has %s", self.label,
                        safe_repr(", ".join(each.name for each, _ in found), 300))  # fmt: skip
        return [
            replace(each, approval=True) if self.approves(*names) else each
            for each, names in chosen
            if self.permits(*names)
        ]


def names_of(server: MCPServer, tool: Tool) -> tuple[str, ...]:
    """Return the names of a server's tool: its own, that with the prefix, and those with the server's label."""
    own = tool.name.removeprefix(safe_name(server.prefix))
    return (own, tool.name, *(f"{server.label}{mark}{own}" for mark in "./:_"))


def restricted(server: MCPServer, **rules: Callable[..., bool]) -> RestrictedServer:
    """Return a server with rules for its tools."""
    options: dict[str, Any] = {each.name: getattr(server, each.name) for each in fields(MCPServer)} | rules
    return RestrictedServer(**options)
