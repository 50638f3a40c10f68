"""Tools beside plain functions: MCP servers and sandboxed code."""

from __future__ import annotations

from heliograph.lazy_names import lazy_names

TYPE_CHECKING = False  # type checkers assume True

if TYPE_CHECKING:
    from heliograph.tools.mcp import MCPServer
    from heliograph.tools.sandbox import SandboxLimits
    from heliograph.tools.sandboxed_tools import code_tool

__all__ = ["MCPServer", "SandboxLimits", "code_tool"]

if not TYPE_CHECKING:
    __getattr__ = lazy_names(
        __name__,
        {
            "heliograph.tools.mcp": ("MCPServer",),
            "heliograph.tools.sandbox": ("SandboxLimits",),
            "heliograph.tools.sandboxed_tools": ("code_tool",),
        },
    )
