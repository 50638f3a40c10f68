"""The tools and MCP servers that an agent's manifest names. A manifest names tools; the operator binds them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from heliograph.definitions.schema_references import reference_cycle
from heliograph.error_text import safe_repr
from heliograph.json_pointer import escaped
from heliograph.manifest.argument_schemas import argument_schema
from heliograph.manifest.document import dotted
from heliograph.manifest.manifest_fields import ManifestFields
from heliograph.types import Json, JsonObject

# Entries of `tools` that start or report work instead of being called by the model.
_NOT_CALLED = ("webhook", "schedule", "pipeline", "workflow", "artifact", "git-commit", "ci-status", "comment")
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
_NAME_MAX = 64
_PLACES = ("/spec/tools", "/spec/tools/allow", "/spec/functions")
_LISTS = ("tools", "toolNames", "capabilities")  # the keys of an entry that list tools of its MCP server
_OF_PROGRAMS = ("stdio",)
_OF_URLS = ("http", "https", "streamable-http", "streamable_http")  # the transports that MCP servers at URLs have here


def bound_name(name: str) -> str:
    """Return the name under which Heliograph has a tool."""
    return "".join(c if c in _NAME_CHARACTERS else "_" for c in name)[:_NAME_MAX]


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
        return bound_name(self.name)


@dataclass(frozen=True, slots=True)
class ServerReference:
    """An MCP server that a manifest declares, as it is written: `${NAME}` and `secret://NAME` are not yet replaced.

    tools: the names of its tools that the agent may use; None for all. An empty list permits none.
    """

    name: str
    pointer: str
    command: tuple[str, ...] | None = None
    url: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    tools: tuple[str, ...] | None = None


def read_tools(fields: ManifestFields) -> tuple[tuple[ToolReference, ...], tuple[ServerReference, ...]]:
    """Read the tools, the functions and the MCP servers of a manifest. Tools are a list, or an object with a list `allow`.

    Keys that are not read here have no effect, and get a warning.
    """
    declared = [*_declared_servers(fields)]
    tools: list[ToolReference] = []
    for pointer, item in [each for place in _PLACES for each in fields.items(place)]:
        found, server = _tools_of(fields, pointer, item)
        tools += found
        if server is not None:
            declared.append(server)
    return tuple(tools), tuple(_one_of_each_name(fields, declared))


def _one_of_each_name(fields: ManifestFields, declared: Sequence[ServerReference]) -> Iterator[ServerReference]:
    """Yield the first server of each name; warn of the others, and of lists without a tool."""
    names = set[str]()
    for each in declared:
        if each.name in names:
            fields.warn("no_effect", f"a second MCP server has the name {safe_repr(each.name)}, and only the first one counts", each.pointer,
                        "rename one of them")  # fmt: skip
            continue
        names.add(each.name)
        if each.tools == ():
            fields.warn("no_effect", f"the list of tools of the MCP server {safe_repr(each.name)} is empty, so the agent has no tool of it",
                        each.pointer, "name its tools, or remove the list")  # fmt: skip
        yield each


def _tools_of(fields: ManifestFields, pointer: str, item: Json) -> tuple[list[ToolReference], ServerReference | None]:
    """Return the tools of an entry: one, or those that it lists of an MCP server; and the server that it declares."""
    if isinstance(item, str) and item:
        fields.value(pointer)
        return [ToolReference(item, pointer)], None
    if not isinstance(item, dict):
        fields.drop(
            "wrong_type", "a tool is an object with a name, so this one has no effect", pointer, "give it a name"
        )
        return [], None
    kind = fields.string(f"{pointer}/type") or ""
    name = _name_of(fields, pointer)
    if kind in _NOT_CALLED:
        fields.drop("no_effect", f"a tool of type {kind} starts or reports work, and no model calls it", pointer,
                    "remove it, or start runs from outside, for example with cron and helio run")  # fmt: skip
        return [], None
    server = _server(fields, name, pointer, f"{pointer}/config", f"{pointer}/server") if kind == "mcp" else None
    if name is None:
        fields.warn("missing_name", f"a tool{f' of type {kind}' if kind else ''} has no name, so nothing can be bound to it", pointer,
                    "give it a name")  # fmt: skip
        return [], server
    needs_approval = fields.flag(*(f"{pointer}/{key}" for key in ("requires_approval", "approval_required")))
    named = server.name if server is not None else fields.string(f"{pointer}/server")
    description, parameters = fields.string(f"{pointer}/description") or "", _parameters(fields, pointer)
    listed = _listed(fields, (pointer,)) if kind == "mcp" and server is None else None
    if listed == ():
        fields.reject(
            "no_tools",
            "the list of tools is empty, so the entry permits none",
            pointer,
            "name the tools, or remove the entry",
        )
    return [ToolReference(each, pointer, kind, description, parameters, named or name if listed else named, needs_approval)
            for each in listed or (name,)], server  # fmt: skip


def _listed(fields: ManifestFields, places: Sequence[str]) -> tuple[str, ...] | None:
    """Return the tools of an MCP server that an entry lists, by their names; None without a list. The strongest place comes last.

    An empty list of `capabilities` is none, because that key may also describe the server.
    """
    for place in (f"{each}/{key}" for each in reversed(places) for key in _LISTS):
        names = [fields.string(pointer, f"{pointer}/name") for pointer, _ in fields.items(place)]
        found = tuple(filter(None, names))
        if found or (isinstance(fields.given(place), list) and not place.endswith("/capabilities")):
            return found
    return None


def _name_of(fields: ManifestFields, pointer: str) -> str | None:
    """Return the name of an entry of `tools`: its own, or else that of its server, capability or function."""
    names = (
        "name",
        "id",
        "function",
        "function/name",
        "server",
        "handler/capability",
        "capabilities/0/name",
        "ref",
        "source",
    )
    return fields.string(*(f"{pointer}/{each}" for each in names))


def _parameters(fields: ManifestFields, pointer: str) -> JsonObject | None:
    """Return the schema of the arguments of a tool. One that refers only to itself would accept everything, so it is rejected."""
    for place in (f"{pointer}/{each}" for each in ("parameters", "input_schema", "inputSchema", "input")):
        if isinstance(given := fields.value(place), dict):
            schema = argument_schema(given)
            if schema.get("type", "object") != "object":
                fields.drop(
                    "no_effect",
                    f"{dotted(place)} has no effect, because arguments are an object",
                    place,
                    "write type: object",
                )
                return None
            fields.whole(place)
            if (cycle := reference_cycle(schema)) is not None:
                fields.reject("invalid_schema", f"the reference {safe_repr(cycle)} leads back to itself, so the schema describes nothing", place,
                              "refer to a definition, or remove the reference")  # fmt: skip
            return schema
    return None


def _declared_servers(fields: ManifestFields) -> Sequence[ServerReference]:
    """Return the servers of `extensions.mcp` and of `protocols.mcp`. Those that the agent itself would offer are not among them."""
    places = ["/extensions/mcp/servers", "/spec/extensions/mcp/servers"]
    if fields.mapping("/protocols/mcp").get("role") in ("client", "both"):
        fields.value("/protocols/mcp/role")
        places.append("/protocols/mcp/servers")
    found: list[ServerReference] = []
    for place in places:
        for pointer, _ in fields.items(place):
            if (server := _server(fields, fields.string(f"{pointer}/name"), pointer)) is not None:
                found.append(server)
    return found


def _server(fields: ManifestFields, name: str | None, pointer: str, *inner: str) -> ServerReference | None:
    """Return the server that an entry describes; None if it only names one. Objects within it are stronger, and `transport` is weaker."""
    own = (pointer, *inner)
    places = (*(f"{each}/transport" for each in own), *own)
    command = _command(fields, places)
    keys = () if command is not None else ("url", "endpoint")
    url = fields.string(*(f"{each}/{key}" for key in keys for each in reversed(places)))
    if command is None and url is None:
        return None
    for each in (f"{place}/{key}" for place in own for key in ("transport", "transport/type")):
        if fields.given(each) in (_OF_PROGRAMS if command is not None else _OF_URLS):
            fields.value(each)
    label = name or (command[0] if command else url) or ""
    return ServerReference(
        label, pointer, command, url, env={} if command is None else _kept(fields, "env", places),
        headers=_kept(fields, "headers", places) if command is None else {}, tools=_listed(fields, places),
    )  # fmt: skip


def _command(fields: ManifestFields, places: Sequence[str]) -> tuple[str, ...] | None:
    """Return the program and its arguments: `command` with `args`, or a command line in `server`."""
    for place in reversed(places):
        given = fields.mapping(place)
        command, server, has_args = given.get("command"), given.get("server"), isinstance(given.get("args"), list)
        if isinstance(command, list) and command:
            parts = fields.texts(f"{place}/command")
        elif fields.string(f"{place}/command") is not None:
            parts = [str(command)] if has_args else _split(str(command))
        elif isinstance(server, str) and " " in server:
            fields.value(f"{place}/server")
            parts = _split(server)
        else:
            continue
        args = [
            fields.value(pointer)
            for pointer, each in fields.items(f"{place}/args")
            if isinstance(each, str | int | float)
        ]
        return (*parts, *map(_scalar_text, args)) or None
    return None


def _split(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:
        return [line]


def _kept(fields: ManifestFields, key: str, places: Sequence[str]) -> dict[str, str]:
    """Return the variables or headers of a server, all of them as texts."""
    return {
        name: _scalar_text(fields.value(f"{place}/{key}/{escaped(name)}"))
        for place in places
        for name, value in fields.mapping(f"{place}/{key}").items()
        if isinstance(value, str | int | float)
    }


def _scalar_text(value: Json) -> str:
    """Return a value as the text that stands in the manifest: `true`, and not `True`."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
