"""One connected MCP client, kept open by a task of its own: the SDK requires the same task to open and close a connection."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from contextvars import Context
from typing import TYPE_CHECKING, Any

from heliograph.error_text import format_exception, safe_repr

if TYPE_CHECKING:
    from mcp import Client

log = logging.getLogger("heliograph.tools")

_CLOSE_SECONDS = 10.0  # a server program that ignores the end of its input is killed after this time
_CLOSED = -32000  # JSON-RPC code of the SDK for a closed connection; servers use it for errors of their own as well
_STREAM_LOST = "SSE stream "  # how the SDK's message begins if a response over HTTP can no longer arrive
_UNREADABLE = {-32700: "Failed to parse ", _CLOSED: "SSE stream failed"}  # and if it arrived, but could not be parsed


class ConnectionLost(Exception):
    """The connection ended before the result arrived."""


class UnreadableResult(Exception):
    """A result arrived, but the SDK could not parse it."""


class McpLink:
    """A client that `connect` opens. label: the server's name for log messages."""

    def __init__(self, label: str, connect: Callable[[], AbstractAsyncContextManager[Client]]):
        self._label = label
        self._connect = connect
        self._closing = asyncio.Event()
        self._ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None
        self._is_closing = False
        self.client: Client

    @property
    def is_lost(self) -> bool:
        # a private attribute: otherwise only a failed call would reveal that the server died while it was idle
        dispatcher = getattr(self.client.session, "_dispatcher", None)
        return (
            self._is_closing or self._task is None or self._task.done() or bool(getattr(dispatcher, "_closed", False))
        )

    async def open(self, seconds: float) -> None:
        """Connect. Raises TimeoutError after `seconds`, and any error of the connection."""
        # in a context of its own: the connection outlives the turn that opens it, and belongs to no trace
        self._task = asyncio.create_task(self._keep_open(), name=f"MCP server {self._label}", context=Context())
        try:
            async with asyncio.timeout(seconds):
                self.client = await asyncio.shield(self._ready)
        except BaseException:
            self._task.cancel()
            raise

    async def during(self, work: Any) -> Any:
        """Await `work`, a request on this link. Raises ConnectionLost as soon as the connection ends, and UnreadableResult."""
        assert self._task is not None
        request = asyncio.ensure_future(work)
        try:
            await asyncio.wait({request, self._task}, return_when=asyncio.FIRST_COMPLETED)
            if not request.done():
                raise ConnectionLost("the connection ended")
            return request.result()
        except Exception as error:
            if _is_unreadable(error):
                details = str(error).partition(": ")[2]
                raise UnreadableResult(safe_repr(details, 500)) from error
            if self._is_loss(error):
                raise ConnectionLost(reason_of(error)) from error
            raise
        finally:
            request.cancel()

    def request_close(self) -> None:
        """Treat this link as lost from now on; the next call opens a new one."""
        self._is_closing = True

    def _is_loss(self, error: BaseException) -> bool:
        """Whether the connection ended. No error that the server itself sent is a loss."""
        from mcp import MCPError

        if isinstance(error, MCPError):
            return error.code == _CLOSED and (self.is_lost or str(error).startswith(_STREAM_LOST))
        import anyio

        return isinstance(error, OSError | anyio.ClosedResourceError | anyio.BrokenResourceError | anyio.EndOfStream)

    async def close(self) -> None:
        """Close the connection and end the server program; cancel tasks that do not end within ten seconds."""
        self._closing.set()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=_CLOSE_SECONDS)
            self._task.cancel()

    async def _keep_open(self) -> None:
        try:
            async with self._connect() as client:
                self._ready.set_result(client)
                await self._closing.wait()
        except Exception as error:
            if self._ready.done():
                log.info("MCP server %s: the connection ended with %s", self._label, reason_of(error))
            else:
                self._ready.set_exception(error)
                self._ready.exception()  # marks it as retrieved, in case nobody awaits it


def _is_unreadable(error: BaseException) -> bool:
    from mcp import MCPError

    return isinstance(error, MCPError) and error.code in _UNREADABLE and str(error).startswith(_UNREADABLE[error.code])


def first_of(error: BaseException) -> BaseException:
    """Return an error; of a group, its first member."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def reason_of(error: object) -> str:
    """Describe an error in one line; of a group, its first member."""
    if isinstance(error, BaseException):
        error = first_of(error)
    if isinstance(error, TimeoutError):
        return "it did not respond in time"
    return safe_repr(format_exception(error, 500)) if isinstance(error, BaseException) else safe_repr(error)
