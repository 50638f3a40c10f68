"""A connection to an MCP server that all turns of a worker share. It opens when it is needed, and again after a loss."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TextIO

from heliograph.egress.post import Resolve, resolved
from heliograph.errors import (
    HarnessError,
    HeliographError,
    SetupError,
    StepInDoubt,
    ToolFailed,
)
from heliograph.policy.egress import EgressPolicy
from heliograph.secrets import Resolver
from heliograph.tools.mcp_decoding import OfferedTool, json_of, offered_tool, requires_task
from heliograph.tools.mcp_failures import failure_of, rejection_of
from heliograph.tools.mcp_link import ConnectionLost, McpLink, UnreadableResult, reason_of
from heliograph.tools.secrets import resolve_references
from heliograph.trace_context import trace_headers
from heliograph.types import Json, JsonObject

if TYPE_CHECKING:
    from mcp import Client

log = logging.getLogger("heliograph.tools")

_PAGES_MAX = 100
_LIST_CHANGED = "notifications/tools/list_changed"


class Connection:
    """The connection to one server.

    label: the server's name in messages. command: starts it as a program over stdin and stdout; otherwise url is its address over
    HTTP. env, headers: may contain references to secrets, which `secrets` resolves. egress: the addresses that url may lead to.
    """

    def __init__(
        self, label: str, command: Sequence[str] | None, url: str | None, env: Mapping[str, str],
        headers: Mapping[str, str], cwd: str | None, connect_seconds: float, *, egress: EgressPolicy,
        secrets: Resolver | None = None, resolve: Resolve = resolved,
    ):  # fmt: skip
        self.label = label
        self._command = command
        self._url = url
        self._env = dict(env)
        self._headers = dict(headers)
        self._cwd = cwd
        self._connect_seconds = connect_seconds
        self._secrets = secrets
        self._egress = egress
        self._resolve = resolve
        self._opening = asyncio.Lock()
        self._link: McpLink | None = None
        self._listed: McpLink | None = None  # the link over which the current list of tools was read

    @property
    def has_changed(self) -> bool:
        """Whether the server's list of tools may have changed: the server sent a notification, or the link was lost."""
        return self._listed is None or self._listed is not self._link or self._listed.is_lost

    async def offered(self) -> list[OfferedTool]:
        """Read the server's list of tools, all pages of it. Raises HarnessError, see `failure_of`."""
        link = self._listed = await self._opened()
        try:
            return await self._pages(link.client)
        except BaseException:
            self._listed = None
            raise

    async def _pages(self, client: Client) -> list[OfferedTool]:
        tools: list[OfferedTool] = []
        cursor: str | None = None
        try:
            async with asyncio.timeout(self._connect_seconds):
                for _ in range(_PAGES_MAX):
                    page = await client.list_tools(cursor=cursor)
                    tools += [offered_tool(tool) for tool in page.tools if not requires_task(tool)]
                    cursor = page.next_cursor
                    if cursor is None:
                        return tools
        except Exception as error:
            raise self._unavailable(error) from error
        raise self._unavailable(f"its list of tools has more than {_PAGES_MAX} pages")

    async def call(self, tool: str, arguments: JsonObject, *, may_repeat: bool) -> Json:
        """Call a tool and return its result as JSON.

        may_repeat: call again, once, if the connection is lost during the call.
        Raises ToolFailed with the server's message; HarnessError if the server cannot be reached or rejects the request; StepInDoubt if
        a call that must not be repeated loses its connection or has an unreadable result.
        """
        for is_last in (False, True):
            link = await self._opened()
            try:
                result = await link.during(link.client.call_tool(tool, arguments, meta=_meta()))
            except UnreadableResult as unreadable:  # the tool has run; other calls on this connection continue
                problem = f"the result of {tool} from MCP server {self.label} cannot be read: {unreadable}"
                raise (
                    ToolFailed(problem, tool=tool) if may_repeat else StepInDoubt(problem, step=tool)
                ) from unreadable
            except ConnectionLost as lost:
                link.request_close()
                if not may_repeat:
                    raise StepInDoubt(
                        f"the connection to MCP server {self.label} was lost during {tool}: {lost}", step=tool
                    ) from lost
                if is_last:
                    raise self._unavailable(
                        ConnectionLost(f"the connection was lost during {tool} twice: {lost}")
                    ) from lost
                continue
            except Exception as error:
                if (rejection := rejection_of(self.label, error)) is None:
                    raise
                raise rejection from error
            return json_of(self.label, tool, result)
        raise AssertionError("unreachable")

    async def close(self) -> None:
        """Close the connection. A later call opens it again."""
        async with self._opening:
            if self._link is not None:
                await self._link.close()
                self._link = None

    async def _opened(self) -> McpLink:
        """Return the open link, or open a new one. Raises HarnessError, SetupError."""
        async with self._opening:
            if self._link is not None and self._link.is_lost:
                log.warning("the connection to MCP server %s was lost; connecting again", self.label)
                await self._link.close()
                self._link = None
            if self._link is None:
                link = McpLink(self.label, self.client)
                try:
                    await link.open(self._connect_seconds)
                except HeliographError:
                    raise
                except (FileNotFoundError, PermissionError) as error:
                    raise SetupError(f"MCP server {self.label} cannot be started: {reason_of(error)}; check its command",
                                     code="no_program") from error  # fmt: skip
                except Exception as error:
                    raise self._unavailable(error) from error
                self._link = link
            return self._link

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        """Connect a new client. The task that enters this context must also leave it."""
        try:
            from mcp import Client, StdioServerParameters, stdio_client
            from mcp.client.streamable_http import streamable_http_client

            from heliograph.tools.mcp_http import RESPONSE_BYTES_MAX, http_client
        except ImportError as error:
            raise SetupError(f"MCP server {self.label} needs the MCP SDK: pip install 'heliograph[mcp]'",
                             code="no_mcp_library") from error  # fmt: skip
        async with contextlib.AsyncExitStack() as stack:
            if self._command is not None:
                program, *rest = self._command
                server = StdioServerParameters(command=program, args=rest, env=self._resolved(self._env), cwd=self._cwd)
                transport = stdio_client(server, errlog=stack.enter_context(_stderr()))
            else:
                url = await self._checked(self._url or "")
                http = http_client(url, self._resolved(self._headers), self._egress, self._resolve)
                transport = streamable_http_client(
                    url, http_client=await stack.enter_async_context(http), max_sse_event_size=RESPONSE_BYTES_MAX
                )
            yield await stack.enter_async_context(Client(transport, cache=None, message_handler=self._on_message))

    async def _checked(self, url: str) -> str:
        """Check the URL before connecting, so that the error is plain: inside the SDK it would be one of many.

        Raises EgressRejected, OSError.
        """
        target = self._egress.target(url)
        self._egress.check(target, await self._resolve(target.host, target.port))
        return target.url

    async def _on_message(self, message: object) -> None:
        if getattr(message, "method", None) == _LIST_CHANGED:
            self._listed = None

    def _resolved(self, values: Mapping[str, str]) -> dict[str, str]:
        return {key: resolve_references(value, self._secrets) for key, value in values.items()}

    def _unavailable(self, problem: object) -> HarnessError:
        return failure_of(self.label, problem, is_remote=self._url is not None)


def _meta() -> Any:
    """Return the trace of the call for the `_meta` of its request, in the configured formats; the SDK itself adds W3C only."""
    return trace_headers() or None


def _stderr() -> contextlib.AbstractContextManager[TextIO]:
    """Return the stderr of this process for the server's own messages, or a null device if there is none."""
    try:
        if sys.__stderr__ is not None and sys.__stderr__.fileno() >= 0:
            return contextlib.nullcontext(sys.__stderr__)
    except (OSError, ValueError):
        pass
    return open(os.devnull, "w", encoding="utf-8")
