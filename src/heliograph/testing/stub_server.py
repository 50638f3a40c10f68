"""A stub of an MCP server: functions in the place of its tools, offered to agents as the server declares them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import msgspec

from heliograph.definitions.tool import Tool, tool
from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput

if TYPE_CHECKING:
    from heliograph.tools.mcp import MCPServer
    from heliograph.tools.mcp_decoding import OfferedTool

_PATH_WIDTH = 300

Declared: TypeAlias = str | PathLike[str] | Mapping[str, Any] | Sequence[Mapping[str, Any]]


class NotStubbed(InvalidInput):
    """The code of a test needs something from outside that has no stub; the message names the stub to write."""

    default_code = "not_stubbed"


@dataclass(frozen=True, slots=True)
class StubServer:
    """Takes the place of an MCP server in a test. The options of the `MCPServer`, such as prefix, effects and approval, remain.

    functions: the stubs, by the server's names of its tools. A stub receives the arguments as JSON, by name, and a ToolContext if a
        parameter is annotated with it.
    declared: what the server answers to `tools/list`, or the path of a JSON file with it: a list of objects with name, description and
        inputSchema. Agents are offered all these tools, and their schemas check the arguments; a call of one without a function fails.
        Without it, agents are offered the functions, and the signatures and docstrings describe them.
    """

    functions: Mapping[str, Callable[..., Any]]
    declared: Declared | None = None


class StubbedServer:
    """The toolset of an agent whose MCP server has a stub. Raises InvalidInput for a stub that does not fit the server."""

    def __init__(self, server: MCPServer, stub: StubServer):
        from heliograph.tools.bound_tool import (
            BoundTool,  # slow to import, and applications without servers do without them
        )
        from heliograph.tools.mcp import safe_name

        self.name = server.name  # agents list it among their capabilities
        self.label = server.label
        offered = _offered(server.label, stub)
        names = {each.name for each in offered}
        if unknown := sorted(stub.functions.keys() - names):
            raise InvalidInput(f"the stub of MCP server {self.label} has a function for {unknown[0]}, and the server declares no such tool; it declares "
                               f"{', '.join(sorted(names)) or 'none'}", code="unknown_tool", path=f"/servers/{self.label}")  # fmt: skip
        unconnected: Any = None
        functions = {safe_name(server.prefix + name): function for name, function in stub.functions.items()}
        self._tools = [
            replace(each, function=functions.get(each.name) or partial(_missing, self.label, each.name))
            for each in server.allowed(offered, unconnected)
        ]
        for each in self._tools:
            BoundTool(each)  # rejects a function that no model can call

    @asynccontextmanager
    async def open_tools(self) -> AsyncIterator[Sequence[Tool]]:
        yield self._tools


def _missing(server: str, name: str, /, **_arguments: Any) -> NoReturn:
    raise NotStubbed(
        f"tool {name} of MCP server {server} was called and has no function; add one to the functions of its StubServer"
    )


def _offered(label: str, stub: StubServer) -> list[OfferedTool]:
    from heliograph.tools.bound_tool import BoundTool
    from heliograph.tools.mcp_decoding import OfferedTool, offered_tool

    if stub.declared is not None:
        return [offered_tool(each) for each in _declared(label, stub.declared)]
    specs = [BoundTool(tool(name=name)(function)).spec for name, function in stub.functions.items()]
    return [OfferedTool(each.name, each.description, each.parameters) for each in specs]


class _Hints(msgspec.Struct, rename="camel"):
    """The annotations of a declared tool, with the names that the MCP SDK uses."""

    read_only_hint: bool | None = None
    idempotent_hint: bool | None = None


class _DeclaredTool(msgspec.Struct, rename="camel"):
    name: str
    input_schema: dict[str, Any]
    description: str | None = None
    annotations: _Hints | None = None


def _declared(label: str, declared: Declared) -> list[_DeclaredTool]:
    """The tools of a list. Raises InvalidInput (`invalid_declaration`)."""
    where, content = "declared", declared
    if isinstance(declared, str | PathLike):
        where = safe_repr(str(declared), _PATH_WIDTH)
        try:
            content = msgspec.json.decode(Path(declared).read_bytes())
        except (OSError, msgspec.DecodeError) as error:
            raise InvalidInput(f"the stub of MCP server {label} cannot read {where}: {error}", code="invalid_declaration",
                               path=f"/servers/{label}/declared") from error  # fmt: skip
    if isinstance(content, Mapping):
        content = content.get("tools", content)
    try:
        return msgspec.convert(content, list[_DeclaredTool])
    except msgspec.ValidationError as error:
        raise InvalidInput(f"the stub of MCP server {label}: {where} must be what the server answers to tools/list, a list of objects with name and "
                           f"inputSchema: {error}", code="invalid_declaration", path=f"/servers/{label}/declared") from error  # fmt: skip
