"""An MCP server for the tests, over stdio or, with a port, over HTTP. It dies on request."""

from __future__ import annotations

import asyncio
import os
import sys

from mcp.server.mcpserver import MCPServer
from mcp_types import ImageContent, TextContent, ToolAnnotations

server = MCPServer("own", log_level="ERROR")


@server.tool(annotations=ToolAnnotations(idempotent_hint=True))
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def pid() -> int:
    """The process that serves."""
    return os.getpid()


@server.tool(name="env.names")
def env() -> list[str]:
    """The names of the variables that it was given."""
    return sorted(os.environ)


@server.tool()
def variable(name: str) -> str:
    """The value of one of them."""
    return os.environ.get(name, "")


@server.tool()
def die(path: str = "") -> str:
    """Die in the middle of the call; with a path, only where there is no such file yet."""
    if path and os.path.exists(path):
        return "lived"
    if path:
        with open(path, "w", encoding="utf-8"):
            pass
    os._exit(3)


@server.tool(structured_output=False)
def parts() -> list[TextContent | ImageContent]:
    """Two parts: a text and an image."""
    return [TextContent(text="a picture"), ImageContent(data="aGk=", mime_type="image/png")]


@server.tool(structured_output=False)
def text() -> str:
    """Only text."""
    return "plain"


@server.tool()
async def sleep() -> str:
    """Never answer."""
    await asyncio.Event().wait()
    return "never"


if len(sys.argv) > 1:
    server.run("streamable-http", port=int(sys.argv[1]))
else:
    server.run("stdio")
