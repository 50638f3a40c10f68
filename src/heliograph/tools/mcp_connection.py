"""One connection to an MCP server, shared by all who call it: opened when it is needed, and again when it was lost.

The SDK wants a connection to be opened and closed by one task, so each has a task of its own that holds it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

from heliograph.codes import MCP_UNAVAILABLE
from heliograph.egress.post import Resolve, resolved
from heliograph.errors import (
    HarnessError,
    HeliographError,
    SetupError,
    StepInDoubt,
    ToolFailed,
    format_exception,
    safe_repr,
)
from heliograph.policy.egress import EgressPolicy
from heliograph.secrets import Resolver
from heliograph.signals.payload import cleaned
from heliograph.tools.secrets import filled
from heliograph.types import Json, JsonObject

if TYPE_CHECKING:
    from mcp import Client

log = logging.getLogger("heliograph.tools")

_CLOSE_SECONDS = 10.0  # a program that does not end when its input does is killed by then
_PAGES_MAX = 100
_LIST_CHANGED = "notifications/tools/list_changed"
_CLOSED = -32000  # JSON-RPC code of the SDK for a connection that ended, and of servers for whatever they like
_STREAM_LOST = "SSE stream "  # how the SDK begins what it says of an answer over HTTP that can never come
_UNREAD = {-32700: "Failed to parse ", _CLOSED: "SSE stream failed"}  # and of one that came and that it could not read


@dataclass(frozen=True, slots=True)
class Offered:
    """A tool as the server describes it."""

    name: str
    description: str
    parameters: JsonObject
    is_read_only: bool = False
    is_idempotent: bool = False


class Connection:
    """See the top of this file. `label` is what people know the server by."""

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
        self._link: _Link | None = None
        self._listed: _Link | None = None  # of which the list of tools was read, and has not changed since

    @property
    def has_changed(self) -> bool:
        """Whether the list of tools may be another one than was read: the server says so, or was lost since."""
        return self._listed is None or self._listed is not self._link or self._listed.is_lost

    async def offered(self) -> list[Offered]:
        """What the server has, all pages of it. Raises HarnessError (MCP_UNAVAILABLE)."""
        link = self._listed = await self._opened()
        try:
            return await self._pages(link.client)
        except BaseException:
            self._listed = None
            raise

    async def _pages(self, client: Client) -> list[Offered]:
        found: list[Offered] = []
        cursor: str | None = None
        try:
            async with asyncio.timeout(self._connect_seconds):
                for _ in range(_PAGES_MAX):
                    page = await client.list_tools(cursor=cursor)
                    found += [_offered(tool) for tool in page.tools if not _is_a_task(tool)]
                    cursor = page.next_cursor
                    if cursor is None:
                        return found
        except Exception as error:
            raise self._unavailable(error) from error
        raise self._unavailable(f"its list of tools has more than {_PAGES_MAX} pages")

    async def call(self, tool: str, arguments: JsonObject, *, may_repeat: bool) -> Json:
        """The result of one call as JSON.

        Raises ToolFailed with what the server says; HarnessError (MCP_UNAVAILABLE) when it could not be asked; StepInDoubt
        when the connection broke in the middle of what may not be repeated, or its answer cannot be read. What may be
        repeated is made once more where the connection broke.
        """
        for is_last in (False, True):
            link = await self._opened()
            try:
                answer = await link.during(link.client.call_tool(tool, arguments))
            except _Unread as unread:  # the server has done what it was asked; the others on this connection go on
                why = f"what MCP server {self.label} answered to {tool} cannot be read: {unread}"
                raise (ToolFailed(why, tool=tool) if may_repeat else StepInDoubt(why, step=tool)) from unread
            except _Lost as lost:
                link.request_close()
                if not may_repeat:
                    raise StepInDoubt(
                        f"MCP server {self.label} was lost in the middle of {tool}: {lost}", step=tool
                    ) from lost
                if is_last:
                    raise self._unavailable(f"it was lost in the middle of {tool} twice: {lost}") from lost
                continue
            return _json_of(self.label, tool, answer)
        raise AssertionError("unreachable")

    async def close(self) -> None:
        async with self._opening:
            if self._link is not None:
                await self._link.close()
                self._link = None

    async def _opened(self) -> _Link:
        """The link that is there, or a new one. Raises HarnessError (MCP_UNAVAILABLE), SetupError."""
        async with self._opening:
            if self._link is not None and self._link.is_lost:
                log.warning("MCP server %s was lost; connecting again", self.label)
                await self._link.close()
                self._link = None
            if self._link is None:
                link = _Link(self)
                try:
                    await link.open(self._connect_seconds)
                except HeliographError:
                    raise
                except (FileNotFoundError, PermissionError) as error:
                    raise SetupError(f"MCP server {self.label} cannot be started: {_reason(error)}",
                                     code="no_program") from error  # fmt: skip
                except Exception as error:
                    raise self._unavailable(error) from error
                self._link = link
            return self._link

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        """A new client, connected. The caller's task has to leave what it has entered."""
        try:
            from mcp import Client, StdioServerParameters, stdio_client
            from mcp.client.streamable_http import streamable_http_client

            from heliograph.tools.mcp_http import ANSWER_BYTES_MAX, http_client
        except ImportError as error:
            raise SetupError(f"MCP server {self.label} needs the MCP SDK: pip install 'heliograph[mcp]'",
                             code="no_mcp_library") from error  # fmt: skip
        async with contextlib.AsyncExitStack() as stack:
            if self._command is not None:
                program, *rest = self._command
                server = StdioServerParameters(command=program, args=rest, env=self._filled(self._env), cwd=self._cwd)
                transport = stdio_client(server, errlog=stack.enter_context(_errors()))
            else:
                url = await self._checked(self._url or "")
                http = http_client(url, self._filled(self._headers), self._egress, self._resolve)
                transport = streamable_http_client(
                    url, http_client=await stack.enter_async_context(http), max_sse_event_size=ANSWER_BYTES_MAX
                )
            yield await stack.enter_async_context(Client(transport, cache=None, message_handler=self._on_message))

    async def _checked(self, url: str) -> str:
        """The URL, as it is looked at for every connection: here it can be said plainly. Raises EgressRejected, OSError."""
        target = self._egress.target(url)
        self._egress.check(target, await self._resolve(target.host, target.port))
        return target.url

    async def _on_message(self, message: object) -> None:
        if getattr(message, "method", None) == _LIST_CHANGED:
            self._listed = None

    def _filled(self, values: Mapping[str, str]) -> dict[str, str]:
        return {key: filled(value, self._secrets) for key, value in values.items()}

    def _unavailable(self, why: object) -> HarnessError:
        reason = why if isinstance(why, str) else _reason(why)
        message = f"MCP server {self.label} cannot be used: {reason}"
        return HarnessError(message, code=MCP_UNAVAILABLE, recoverable=True)


class _Lost(Exception):
    """The connection ended before the answer came."""


class _Unread(Exception):
    """There was an answer, which nobody knows."""


class _Link:
    """One connected client, held by its own task."""

    def __init__(self, connection: Connection):
        self._connection = connection
        self._closing = asyncio.Event()
        self._ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None
        self._is_closing = False
        self.client: Client

    @property
    def is_lost(self) -> bool:
        # the SDK says so nowhere else: without this a server that died while idle would cost a call to find out
        dispatcher = getattr(self.client.session, "_dispatcher", None)
        return (
            self._is_closing or self._task is None or self._task.done() or bool(getattr(dispatcher, "_closed", False))
        )

    async def open(self, seconds: float) -> None:
        """Raises what went wrong, TimeoutError."""
        self._task = asyncio.create_task(self._keep_open(), name=f"MCP server {self._connection.label}")
        try:
            async with asyncio.timeout(seconds):
                self.client = await asyncio.shield(self._ready)
        except BaseException:
            self._task.cancel()
            raise

    async def during(self, work: Any) -> Any:
        """What `work` answers. Raises _Lost as soon as the connection is, whatever `work` is doing then; _Unread."""
        assert self._task is not None
        asking = asyncio.ensure_future(work)
        try:
            await asyncio.wait({asking, self._task}, return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                raise _Lost("the connection ended")
            return asking.result()
        except Exception as error:
            if _is_unread(error):
                raise _Unread(
                    safe_repr(str(error).partition(": ")[2], 500)
                ) from error  # without what the SDK puts before it
            if self._is_loss(error):
                raise _Lost(_reason(error)) from error
            raise
        finally:
            asking.cancel()

    def request_close(self) -> None:
        self._is_closing = True

    def _is_loss(self, error: BaseException) -> bool:
        """Whether the connection broke. What the server itself answered is no loss, under whatever code."""
        from mcp import MCPError

        if isinstance(error, MCPError):
            return error.code == _CLOSED and (self.is_lost or str(error).startswith(_STREAM_LOST))
        import anyio

        return isinstance(error, OSError | anyio.ClosedResourceError | anyio.BrokenResourceError | anyio.EndOfStream)

    async def close(self) -> None:
        """Close the connection and end the program; what does not end in time is left to its own."""
        self._closing.set()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=_CLOSE_SECONDS)
            self._task.cancel()

    async def _keep_open(self) -> None:
        try:
            async with self._connection.client() as client:
                self._ready.set_result(client)
                await self._closing.wait()
        except Exception as error:
            if self._ready.done():
                log.info("MCP server %s: its connection ended with %s", self._connection.label, _reason(error))
            else:
                self._ready.set_exception(error)
                self._ready.exception()  # seen, also when nobody waits for it any more


def _is_unread(error: BaseException) -> bool:
    from mcp import MCPError

    return isinstance(error, MCPError) and error.code in _UNREAD and str(error).startswith(_UNREAD[error.code])


def _is_a_task(tool: Any) -> bool:
    """Whether the server refuses to be called but for a task, which it keeps: those are not ours to offer."""
    return tool.execution is not None and tool.execution.task_support == "required"


def _offered(tool: Any) -> Offered:
    hints, schema = tool.annotations, dict(tool.input_schema)
    if schema.get("properties") is None:
        schema["properties"] = {}  # which providers want to be told
    return Offered(
        tool.name, cleaned(tool.description or ""), schema,
        bool(hints and hints.read_only_hint), bool(hints and hints.idempotent_hint),
    )  # fmt: skip


def _json_of(label: str, tool: str, answer: Any) -> Json:
    """What a model is told: the structured result, else the text, else all parts. Raises ToolFailed."""
    parts: list[Json] = [part.model_dump(mode="json", by_alias=True, exclude_none=True) for part in answer.content]
    texts = [str(part["text"]) for part in parts if isinstance(part, dict) and part.get("type") == "text"]
    if answer.is_error:
        raise ToolFailed("\n".join(texts) or f"{tool} of MCP server {label} failed and did not say why", tool=tool)
    if answer.structured_content is not None:
        structured: Json = answer.structured_content
        return structured
    return "\n".join(texts) if len(texts) == len(parts) else {"content": parts}


def _reason(error: object) -> str:
    """An error in one line; of a group the first that is none."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    return safe_repr(format_exception(error, 500)) if isinstance(error, BaseException) else safe_repr(error)


def _errors() -> contextlib.AbstractContextManager[TextIO]:
    """Where a program's own messages go: to ours, where there is such a place."""
    try:
        if sys.__stderr__ is not None and sys.__stderr__.fileno() >= 0:
            return contextlib.nullcontext(sys.__stderr__)
    except (OSError, ValueError):
        pass
    return open(os.devnull, "w", encoding="utf-8")
