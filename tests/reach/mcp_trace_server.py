"""An MCP server for the tests, over stdio: its tool returns the `_meta` of the request."""

from __future__ import annotations

from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("trace", log_level="ERROR")


@server.tool()
def trace(ctx: Context) -> dict[str, str]:
    """The texts in the `_meta` of the request."""
    return {key: value for key, value in (ctx.request_context.meta or {}).items() if isinstance(value, str)}


server.run("stdio")
