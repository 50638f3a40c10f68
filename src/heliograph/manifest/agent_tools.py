"""The tools and MCP servers that an agent's manifest names. A manifest names tools; the operator binds them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from heliograph.manifest.manifest_fields import ManifestFields
from heliograph.types import Json, JsonObject

# Entries of `tools` that start or report work instead of being called by the model.
_NOT_CALLED = ("webhook", "schedule", "pipeline", "workflow", "artifact", "git-commit", "ci-status", "comment")
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
_NAME_MAX = 64
_PLACES = ("/spec/tools", "/spec/tools/allow", "/spec/functions")


@dataclass(frozen=True, slots=True)
class ToolReference:
    """A tool that a manifest names. pointer: where it stands. parameters: the JSON Schema of its arguments, if the manifest has one.

    server: the MCP server that the entry declares or names, if it is of type mcp.
    """

    name: str
    pointer: str
    kind: str = ""
    description: str = ""
    parameters: JsonObject | None = None
    server: str | None = None
    needs_approval: bool = False

    @property
    def bound_name(self) -> str:
        """The name under which Heliograph has the tool: other characters than letters, digits, '_' and '-' become '_'."""
        return "".join(c if c in _NAME_CHARACTERS else "_" for c in self.name)[:_NAME_MAX]


@dataclass(frozen=True, slots=True)
class ServerReference:
    """An MCP server that a manifest declares, as it is written: `${NAME}` and `secret://NAME` are not yet replaced.

    tools: the names of its tools that the agent may use; None for all.
    """

    name: str
    pointer: str
    command: tuple[str, ...] | None = None
    url: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    tools: tuple[str, ...] | None = None


def read_tools(fields: ManifestFields) -> tuple[tuple[ToolReference, ...], tuple[ServerReference, ...]]:
    """Read the tools, the functions and the MCP servers of a manifest. Tools are a list, or an object with a list `allow`."""
    servers = [*_declared_servers(fields)]
    tools: list[ToolReference] = []
    if fields.mapping("/spec/tools"):
        fields.value("/spec/tools/deny")  # the agent has only the tools of `allow`
    for pointer, item in [each for place in _PLACES for each in fields.items(place)]:
        tool, server = _tool(fields, pointer, item)
        if tool is not None:
            tools.append(tool)
        if server is not None and server.name not in [each.name for each in servers]:
            servers.append(server)
    return tuple(tools), tuple(servers)


def _tool(fields: ManifestFields, pointer: str, item: Json) -> tuple[ToolReference | None, ServerReference | None]:
    fields.value(pointer)
    if isinstance(item, str) and item:
        return ToolReference(item, pointer), None
    if not isinstance(item, dict):
        fields.warn(
            "wrong_type", "a tool is an object with a name, so this one has no effect", pointer, "give it a name"
        )
        return None, None
    kind = _text(item.get("type"))
    name = _name_of(item)
    if kind in _NOT_CALLED:
        fields.warn("no_effect", f"a tool of type {kind} starts or reports work, and no model calls it", pointer,
                    "remove it, or start runs from outside, for example with cron and helio run")  # fmt: skip
        return None, None
    server = _server_of_tool(name, item, pointer) if kind == "mcp" else None
    if name is None:
        fields.warn("missing_name", f"a tool{f' of type {kind}' if kind else ''} has no name, so nothing can be bound to it", pointer,
                    "give it a name")  # fmt: skip
        return None, server
    schema: Any = next(
        (item[each] for each in ("parameters", "input_schema", "inputSchema") if isinstance(item.get(each), dict)), None
    )
    needs_approval = any(item.get(each) is True for each in ("requires_approval", "approval_required"))
    server_name = server.name if server is not None else _text(item.get("server")) or None
    return ToolReference(
        name, pointer, kind, _text(item.get("description")), schema, server_name, needs_approval
    ), server


def _name_of(item: Mapping[str, Json]) -> str | None:
    """Return the name of an entry of `tools`: its own, or else that of its server, capability or function."""
    handler, function = item.get("handler"), item.get("function")
    capabilities = item.get("capabilities")
    first = capabilities[0] if isinstance(capabilities, list) and capabilities else None
    candidates = (
        item.get("name"), item.get("id"), function if isinstance(function, str) else _key(function, "name"), item.get("server"),
        _key(handler, "capability"), _key(first, "name"), item.get("ref"), item.get("source"),
    )  # fmt: skip
    return next((each for each in candidates if isinstance(each, str) and each), None)


def _declared_servers(fields: ManifestFields) -> Sequence[ServerReference]:
    """Return the servers of `extensions.mcp` and of `protocols.mcp`. Those that the agent itself would offer are not among them."""
    places = ["/extensions/mcp/servers", "/spec/extensions/mcp/servers"]
    if fields.mapping("/protocols/mcp").get("role") in ("client", "both"):
        fields.value("/protocols/mcp/role")
        fields.value("/protocols/mcp/version")
        places.append("/protocols/mcp/servers")
    found: list[ServerReference] = []
    for place in places:
        for pointer, item in fields.items(place):
            fields.value(pointer)
            if isinstance(item, dict) and (server := _server(_text(item.get("name")), item, pointer)) is not None:
                found.append(server)
    return found


def _server_of_tool(name: str | None, item: Mapping[str, Json], pointer: str) -> ServerReference | None:
    """Return the server that a tool of type mcp declares, in its own keys or below `config`; None if it only names one."""
    config = item.get("config")
    given = {**item, **(config if isinstance(config, dict) else {})}
    return _server(name, given, pointer)


def _server(name: str | None, given: Mapping[str, Json], pointer: str) -> ServerReference | None:
    """Return the server that an object describes, in its own keys or below `transport`; None without a program and a URL."""
    transport = given.get("transport")
    given = {**(transport if isinstance(transport, dict) else {}), **given}
    url = _text(given.get("url")) or _text(given.get("endpoint"))
    command = _command(given)
    if command is not None and url:
        url = ""
    if command is None and not url:
        return None
    tools = given.get("tools")
    names = (
        [each if isinstance(each, str) else _text(_key(each, "name")) for each in tools]
        if isinstance(tools, list)
        else []
    )
    env, headers = (_texts(given.get(each)) for each in ("env", "headers"))
    label = name or (command[0] if command else url)
    return ServerReference(label, pointer, command, url or None, env, headers, tuple(filter(None, names)) or None)


def _command(given: Mapping[str, Json]) -> tuple[str, ...] | None:
    """Return the program and its arguments: `command` with `args`, or a command line in `server`."""
    command, server = given.get("command"), given.get("server")
    if isinstance(command, list):
        parts = [each for each in command if isinstance(each, str)]
    elif isinstance(command, str) and command:
        parts = [command] if given.get("args") is not None else _split(command)
    elif isinstance(server, str) and " " in server:
        parts = _split(server)
    else:
        return None
    args = given.get("args")
    return (*parts, *(_scalar_text(each) for each in args)) if isinstance(args, list) else tuple(parts) or None


def _split(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:
        return [line]


def _texts(given: Json) -> dict[str, str]:
    """Return the variables or headers of a server, all of them as texts."""
    return {key: _scalar_text(value) for key, value in given.items()} if isinstance(given, dict) else {}


def _scalar_text(value: Json) -> str:
    """Return a value as the text that stands in the manifest: `true`, and not `True`."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _key(value: Json, key: str) -> Json:
    return value.get(key) if isinstance(value, dict) else None


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""
