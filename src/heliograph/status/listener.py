"""Serve `/metrics`, `/live` and `/ready` of a worker over HTTP.

The number of connections, their time, and the bytes that each one reads are bounded, and each connection serves one request. While
there are too many, the oldest connection of the address that has most of them ends. So no client can delay another one, or the worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from ipaddress import ip_address

from heliograph.errors import SetupError
from heliograph.policy.listening import Listening
from heliograph.world.cancellation import cancel

try:
    import h11
except ImportError as error:
    raise SetupError("--listen and HELIOGRAPH_LISTEN need the HTTP library: pip install 'heliograph[metrics]'",
                     code="no_http_library") from error  # fmt: skip

log = logging.getLogger("heliograph.status")

CONNECTIONS_MAX = 32
REQUEST_SECONDS = 5.0  # from the connection to the last byte of the response
_REQUEST_BYTES_MAX = 8192
_READ_BYTES = 4096
_IGNORED_BYTES_MAX = 65_536  # of a client that sends more than its request
_TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Response:
    """The response to a request."""

    status: HTTPStatus
    text: str
    content_type: str = _TEXT


@dataclass(frozen=True, slots=True)
class Page:
    """A page of the listener. scope: of the keys that may read it; None for a page that needs no key."""

    read: Callable[[], Awaitable[Response]]
    scope: str | None = None


class Listener:
    """Serves pages, one for each connection. now: the clock, for the last day of keys."""

    def __init__(self, listening: Listening, pages: Mapping[str, Page], now: Callable[[], datetime],
                 request_seconds: float = REQUEST_SECONDS):  # fmt: skip
        self._listening = listening
        self._pages = pages
        self._now = now
        self._request_seconds = request_seconds
        self._connections: dict[asyncio.Task[None], str] = {}  # with the addresses of their clients, the oldest first
        self._ending: set[asyncio.Task[None]] = set()
        self._is_open = False

    @asynccontextmanager
    async def open(self) -> AsyncIterator[str]:
        """Listen while the context is open; yield the URL. Raises SetupError (`address_in_use`)."""
        host, port = self._listening.host, self._listening.port
        try:
            server = await asyncio.start_server(self._accept, host, port, limit=_REQUEST_BYTES_MAX)
        except OSError as error:
            raise SetupError(f"cannot listen on {host}:{port}: {error.strerror}; choose another address for --listen or HELIOGRAPH_LISTEN",
                             code="address_in_use") from error  # fmt: skip
        port = server.sockets[0].getsockname()[1]
        self._is_open = True
        try:
            yield f"http://{f'[{host}]' if ':' in host else host}:{port}"
        finally:
            server.close()
            self._is_open = False
            for task in list(self._connections):
                self._end(task)
            await cancel(self._ending)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if self._is_open:
            if len(self._connections) >= CONNECTIONS_MAX:
                self._end(self._oldest_of_the_busiest())
            self._connections[task] = (writer.get_extra_info("peername") or [""])[0]
        try:
            async with asyncio.timeout(self._request_seconds if self._is_open else 0):
                await self._serve(reader, writer)
        except (OSError, TimeoutError, h11.ProtocolError):
            pass  # a client that is slow or breaks the protocol harms only itself
        except asyncio.CancelledError:
            pass  # another connection needs its place, or the listener closes; nobody awaits this task
        finally:
            self._connections.pop(task, None)
            self._ending.discard(task)
            writer.transport.abort()

    def _oldest_of_the_busiest(self) -> asyncio.Task[None]:
        """The oldest connection of the address that has most of them: many connections of one client end none of another."""
        counts = Counter(self._connections.values())
        most = max(counts.values())
        return next(task for task, address in self._connections.items() if counts[address] == most)

    def _end(self, task: asyncio.Task[None]) -> None:
        del self._connections[task]
        self._ending.add(task)
        task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=_REQUEST_BYTES_MAX)
        method = b"GET"
        try:
            request = await _request(connection, reader)
            if request is None:
                return
            method = request.method
            response = await self._respond(request)
        except h11.RemoteProtocolError as error:
            status = HTTPStatus(error.error_status_hint)
            response = Response(status, f"{status.phrase}\n")
        body = response.text.encode("utf-8", "replace")
        headers = [("Content-Type", response.content_type), ("Content-Length", str(len(body))), ("Connection", "close"),
                   ("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff")]  # fmt: skip
        if response.status is HTTPStatus.UNAUTHORIZED:
            headers.append(("WWW-Authenticate", "Bearer"))
        head = h11.Response(status_code=response.status, headers=headers, reason=response.status.phrase)
        if writer.is_closing():  # the client has gone, and uvloop raises RuntimeError for a write
            return
        writer.write(connection.send(head) or b"")
        if method != b"HEAD":
            writer.write(connection.send(h11.Data(data=body)) or b"")
        await writer.drain()
        if writer.is_closing():
            return
        writer.write_eof()
        # until the client has read the response: an abort would delete what is still in the buffers
        ignored = 0
        with contextlib.suppress(OSError):
            while ignored < _IGNORED_BYTES_MAX and (data := await reader.read(_READ_BYTES)):
                ignored += len(data)

    async def _respond(self, request: h11.Request) -> Response:
        headers = dict(request.headers)
        if not self._is_own_host(headers.get(b"host", b"").decode("latin-1")):
            return Response(HTTPStatus.MISDIRECTED_REQUEST, "the header Host must be an IP address or localhost\n")
        path = request.target.partition(b"?")[0].decode("latin-1")
        page = self._pages.get(path)
        if page is None:
            return Response(HTTPStatus.NOT_FOUND, f"there are {', '.join(sorted(self._pages))}\n")
        if request.method not in (b"GET", b"HEAD"):
            return Response(HTTPStatus.METHOD_NOT_ALLOWED, "use GET\n")
        if page.scope is not None and not self._listening.allows(page.scope, _key(request), self._now()):
            return Response(HTTPStatus.UNAUTHORIZED, "a valid key is required: Authorization: Bearer KEY\n")
        try:
            return await page.read()
        except Exception:
            log.exception("the page %s failed", path)
            return Response(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error; the log of the worker has the reason\n")

    def _is_own_host(self, host: str) -> bool:
        """Whether a request without a key names this listener by its address. A page in a browser cannot: it has a name."""
        if self._listening.keys:
            return True
        name = host.rpartition(":")[0] if ":" in host and not host.endswith("]") else host
        try:
            return name == "localhost" or bool(ip_address(name.strip("[]")))
        except ValueError:
            return False


def _key(request: h11.Request) -> bytes:
    """The key of a request; empty without one. Several headers count as none: a proxy may have checked another one."""
    credentials = [value for name, value in request.headers if name == b"authorization"]
    scheme, _, key = credentials[0].partition(b" ") if len(credentials) == 1 else (b"", b"", b"")
    return key.strip() if scheme.lower() == b"bearer" else b""


async def _request(connection: h11.Connection, reader: asyncio.StreamReader) -> h11.Request | None:
    """Read the head of a request; None if the client ends before it has sent any. Raises RemoteProtocolError."""
    while True:
        event = connection.next_event()
        if isinstance(event, h11.Request):
            return event
        if event is not h11.NEED_DATA:
            return None
        connection.receive_data(await reader.read(_READ_BYTES))
