"""A receiver of POSTs over a real socket with scripted answers: valid, malformed, slow, or endless."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from heliograph.world.cancellation import cancel

OK = b"HTTP/1.1 204 No Content\r\n\r\n"


@dataclass(slots=True)
class Request:
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(slots=True)
class Hook:
    """answers: one for each request, and the last one for all later requests. For None the server sends no response."""

    port: int
    answers: list[bytes | None] = field(default_factory=lambda: [OK])
    requests: list[Request] = field(default_factory=list)
    endless: bytes | None = None  # sent again and again after the answer
    connections: int = 0
    came: asyncio.Event = field(default_factory=asyncio.Event)
    _handlers: set[asyncio.Task[None] | None] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not holds():
                self.came.clear()
                await self.came.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._handlers.add(asyncio.current_task())
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.split("\r\n")[:-2]
            headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
            body = await reader.readexactly(int(headers["content-length"]))
            answer = self.answers[min(len(self.requests), len(self.answers) - 1)]
            self.requests.append(Request(first.split()[1], headers, body))
            self.came.set()
            if answer is None:
                await reader.read()
            else:
                writer.write(answer)
                while self.endless is not None:
                    writer.write(self.endless)
                    await writer.drain()
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        writer.transport.abort()


@asynccontextmanager
async def hooked(*answers: bytes | None, tls: ssl.SSLContext | None = None) -> AsyncIterator[Hook]:
    hook = Hook(0, list(answers) or [OK])
    server = await asyncio.start_server(hook._serve, "127.0.0.1", 0, ssl=tls)
    hook.port = server.sockets[0].getsockname()[1]
    try:
        yield hook
    finally:
        server.close()
        await cancel(task for task in hook._handlers if task is not None)
