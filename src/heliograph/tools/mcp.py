"""Use the tools of an MCP server, with the options that the agent's author chose."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from heliograph.definitions.tool import TOOL_EFFECTS, Approval, Tool, ToolEffect, check_tool
from heliograph.error_text import safe_repr
from heliograph.errors import HeliographError, InvalidInput
from heliograph.policy.egress import EgressPolicy, EgressRejected, parse, server_policy
from heliograph.secrets import Resolver
from heliograph.signals.payload import check_json
from heliograph.tools.bound_tool import BoundTool
from heliograph.tools.mcp_connection import Connection
from heliograph.tools.mcp_decoding import OfferedTool
from heliograph.types import NOT_GIVEN, Json, Timeout

log = logging.getLogger("heliograph.tools")

_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
_DESCRIPTION_MAX = 4000
_EFFECTS = tuple(effect for effect in TOOL_EFFECTS if effect != "transactional")


@dataclass(frozen=True, eq=False)
class MCPServer:
    """A server of the Model Context Protocol, listed among an agent's `tools`.

    command: the program and its arguments, for a server over stdin and stdout. It receives `env` and the few variables that
        every program needs, and no other variables of the worker. url: the address of a server over streamable HTTP;
        every request sends `headers`. Neither env nor headers are ever shown. Only https on the public internet is allowed,
        and the origins in HELIOGRAPH_MCP_ALLOW, which may be private or http.
    name: the server's name in messages. prefix: put before the name of each tool, if two servers use the same names.
    tools: the tools that agents may use, by the server's names; None allows all of them.
    effect: whether a call is repeated if the worker dies or the connection breaks (see `Tool`); `effects` overrides it for
        single tools. trusts_annotations: believe the server's own readOnlyHint (pure) and idempotentHint.
    timeout_seconds: the timeout of one call; see `Tool`. connect_seconds: the timeout of starting or reaching the server.
    approval: True, a function of the arguments, or the names of the tools that require approval. concurrency: the number of
        parallel calls of one tool. in_doubt, trusted: see `Tool`.
    secrets: a function `(name) -> value` for each `secret://name` in env and headers; by default the environment. Secrets are
        looked up when the server is started or reached.
    """

    command: Sequence[str] | None = None
    url: str | None = None
    name: str | None = None
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = None
    prefix: str = ""
    tools: Collection[str] | None = None
    effect: ToolEffect = "once"
    effects: Mapping[str, ToolEffect] = field(default_factory=dict)
    trusts_annotations: bool = False
    timeout_seconds: Timeout = NOT_GIVEN
    connect_seconds: float = 30.0
    approval: Approval | Collection[str] = False
    concurrency: int | None = None
    in_doubt: Any = "return_error"
    trusted: bool = False
    secrets: Resolver | None = None

    def __post_init__(self) -> None:
        if (self.command is None) == (self.url is None):
            raise self._bad("needs either a command or a url, not both", "required_field", "command")
        if self.command is not None and (isinstance(self.command, str) or not self.command
                                         or not all(isinstance(part, str) for part in self.command)):  # fmt: skip
            raise self._bad("needs its command as a list: the program, then its arguments", "wrong_type", "command")
        if self.url is not None:
            try:
                parse(self.url)
            except EgressRejected as refused:
                raise self._bad(f"has an invalid url: {refused.message}", "invalid_url", "url") from None
        if isinstance(self.tools, str):
            raise self._bad("needs its tools as a list of names", "wrong_type", "tools")
        for option, effect in {
            "effect": self.effect,
            **{f"effects[{tool}]": each for tool, each in self.effects.items()},
        }.items():
            if effect not in _EFFECTS:
                raise self._bad(f"needs one of {', '.join(_EFFECTS)} as {option}, not {safe_repr(effect)}",
                                "invalid_enum", "effect")  # fmt: skip
        check_tool(self._tool(OfferedTool("checked", "", {"type": "object"})))

    @property
    def label(self) -> str:
        """The server's name in messages: its `name`, or else its program or the host of its URL."""
        if self.name is not None:
            return self.name
        return self.command[0] if self.command else parse(self.url or "").host

    @asynccontextmanager
    async def open_tools(self, egress: EgressPolicy | None = None) -> AsyncIterator[MCPTools]:
        """Connect and return the server's tools. The connection opens again whenever it is lost.

        The returned sequence has a method `refresh` that reads the list again. egress: the allowed addresses; by default only those
        on the public internet. Raises HarnessError while the server cannot be reached (NETWORK_ERROR, MCP_UNAVAILABLE) or rejects the
        credentials (AUTH_ERROR), EgressRejected for a url that is not allowed, and InvalidInput if `tools` names a tool that is
        missing or cannot be used.
        """
        connection = Connection(
            self.label,
            self.command,
            self.url,
            self.env,
            self.headers,
            self.cwd,
            self.connect_seconds,
            secrets=self.secrets,
            egress=egress or server_policy(),
        )
        try:
            tools = MCPTools(self, connection)
            await tools.read()
            yield tools
        finally:
            await connection.close()

    def allowed(self, offered: Sequence[OfferedTool], connection: Connection) -> list[Tool]:
        """Return the tools that agents may use. An offered tool with an invalid definition is skipped with a warning.

        Raises InvalidInput instead if `tools` names such a tool, or one that the server does not have.
        """
        by_name = {each.name: each for each in offered}
        wanted = by_name if self.tools is None else self.tools
        named = {*wanted, *self.effects, *(self.approval if isinstance(self.approval, Collection) else ())}
        if missing := sorted(named - by_name.keys()):
            raise self._bad(
                f"has no tool {', '.join(missing)}; it has {', '.join(by_name) or 'none'}", "unknown_tool", "tools"
            )
        tools: dict[str, Tool] = {}
        for each in (tool for name, tool in by_name.items() if name in wanted):
            try:
                tool = self._checked(each, connection)
                if tool.name in tools:
                    raise self._bad(f"has two tools with the name {tool.name}; give it a prefix or list its tools",
                                    "duplicate_entry", "tools")  # fmt: skip
                tools[tool.name] = tool
            except InvalidInput as error:
                if self.tools is not None:
                    raise
                log.warning("tool %s of MCP server %s is skipped: %s", safe_repr(each.name), self.label, error.message)
        return list(tools.values())

    def tool_called(self, name: str) -> Tool | None:
        """Return the tool that agents call by this name, without description, schema and connection; None if they may call no such tool."""
        listed = {*self.effects, *(self.approval if isinstance(self.approval, Collection) else ()), *(self.tools or ())}
        if self.tools is None and not any(safe_name(self.prefix + each) == name for each in listed):
            listed.add(name.removeprefix(safe_name(self.prefix)))
        unconnected: Any = None
        tools = self.allowed([OfferedTool(each, "", {"type": "object"}) for each in sorted(listed)], unconnected)
        return next((tool for tool in tools if tool.name == name), None)

    def _checked(self, offered: OfferedTool, connection: Connection) -> Tool:
        """Return an offered tool as a Tool. Raises InvalidInput for an invalid definition."""
        check_json(offered.parameters)
        tool = check_tool(self._tool(offered, connection))
        BoundTool(tool)  # checks the schema
        return tool

    def _tool(self, offered: OfferedTool, connection: Connection | None = None) -> Tool:
        effect = self.effects.get(offered.name, self._hinted(offered))
        approval = offered.name in self.approval if isinstance(self.approval, Collection) else self.approval

        async def call(**arguments: Json) -> Json:
            assert connection is not None
            return await connection.call(offered.name, arguments, may_repeat=effect != "once")

        return Tool(
            safe_name(self.prefix + offered.name), call, offered.description[:_DESCRIPTION_MAX], offered.parameters, effect=effect,
            timeout_seconds=self.timeout_seconds, concurrency=self.concurrency, approval=approval, in_doubt=self.in_doubt,
            trusted=self.trusted,
        )  # fmt: skip

    def _hinted(self, offered: OfferedTool) -> ToolEffect:
        if self.trusts_annotations and offered.is_read_only:
            return "pure"
        return "idempotent" if self.trusts_annotations and offered.is_idempotent else self.effect

    def _bad(self, problem: str, code: str, option: str) -> InvalidInput:
        return InvalidInput(
            f"MCP server {self.name or self.command or 'without a name'} {problem}", code=code, path=f"/tools/{option}"
        )


class MCPTools(Sequence[Tool]):
    """The tools of a connected server, as last read."""

    def __init__(self, server: MCPServer, connection: Connection):
        self._server = server
        self._connection = connection
        self._offered: list[OfferedTool] = []
        self._tools: list[Tool] = []
        self._reading = asyncio.Lock()

    async def read(self) -> None:
        """Read the server's list of tools. Raises the errors of `open_tools`."""
        offered = await self._connection.offered()
        if offered != self._offered:  # an unchanged list keeps its tool objects, with their concurrency limits
            self._tools = self._server.allowed(offered, self._connection)
            self._offered = offered

    async def refresh(self) -> None:
        """Read the list again if it may have changed. If that fails, log a warning and keep the tools."""
        async with self._reading:
            if self._connection.has_changed:
                try:
                    await self.read()
                except HeliographError as error:
                    log.warning("cannot read the tools of MCP server %s again, so they stay as they were: %s",
                                self._server.label, error.message)  # fmt: skip

    def __getitem__(self, index: Any) -> Any:
        return self._tools[index]

    def __len__(self) -> int:
        return len(self._tools)


def safe_name(name: str) -> str:
    """Replace the characters that MCP allows in names but model providers do not."""
    return "".join(c if c in _NAME_CHARACTERS else "_" for c in name)
