"""Responses of an HTTP server are read up to a bound: an oversized one fails its call alone."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from heliograph.errors import StepInDoubt, ToolFailed
from heliograph.policy.egress import EgressPolicy
from heliograph.tools import MCPServer
from heliograph.tools.mcp_connection import Connection
from heliograph.tools.mcp_http import RESPONSE_BYTES_MAX, http_client

pytestmark = [pytest.mark.proves("S7", "S11"), pytest.mark.timeout(60)]

JSON, EVENTS = "content-type: application/json", "content-type: text/event-stream"
MANY = b"x" * 65_536
BOMB = gzip.compress(b"0" * 64 * 1024 * 1024)


class Peer:
    """An MCP server over a bare socket. It answers the tool `flood` with a head and an endless body."""

    def __init__(self, head: str, body: bytes = MANY):
        self.head = head
        self.body = body
        self.port = 0
        self.sent = self.floods = 0
        self.encodings: set[str] = set()
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                fields = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:-2])
                self.encodings.add(fields["accept-encoding"])
                body = await reader.readexactly(int(fields.get("content-length", 0)))
                await self.answer(json.loads(body) if body else {}, writer)
        writer.transport.abort()

    async def answer(self, request: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        method, result = request.get("method"), dict[str, Any]()
        if request.get("id") is None:
            writer.write(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n" if method else NOT_FOUND)
            return
        if method == "initialize":
            version = request["params"]["protocolVersion"]
            result = {
                "protocolVersion": version,
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "peer", "version": "1"},
            }
        elif method == "tools/list":
            result = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ("flood", "echo")]}
        elif method == "tools/call" and request["params"]["name"] == "flood":
            self.floods += 1
            writer.write(f"HTTP/1.1 {self.head}\r\n\r\n".encode())
            while True:
                writer.write(self.body)
                self.sent += len(self.body)
                await writer.drain()
        elif method == "tools/call":
            result = {"content": [{"type": "text", "text": "echo"}]}
        else:
            writer.write(NOT_FOUND)
            return
        answer = json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}).encode()
        writer.write(f"HTTP/1.1 200 OK\r\n{JSON}\r\ncontent-length: {len(answer)}\r\n\r\n".encode() + answer)


NOT_FOUND = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"


@asynccontextmanager
async def listening(peer: Peer) -> AsyncIterator[tuple[str, EgressPolicy]]:
    server = await asyncio.start_server(peer.serve, "127.0.0.1", 0)
    peer.port = server.sockets[0].getsockname()[1]
    origin = f"http://127.0.0.1:{peer.port}"
    try:
        yield f"{origin}/mcp", EgressPolicy(frozenset({origin}))
    finally:
        server.close()


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (f"200 OK\r\n{JSON}", f"sent more than {RESPONSE_BYTES_MAX} bytes"),
        (f"200 OK\r\n{JSON}\r\ncontent-length: 1000000000", f"sent more than {RESPONSE_BYTES_MAX} bytes"),
        (f"400 Bad Request\r\n{JSON}", "error response"),
        (f"200 OK\r\n{JSON}\r\ncontent-encoding: gzip", "in the encoding gzip"),
        (f"200 OK\r\n{EVENTS}\r\ncontent-encoding: br", "in the encoding br"),
    ],
    ids=["json", "announced", "an error", "gzip", "events"],
)
async def test_endless_response_is_read_to_the_bound_and_fails_with_the_reason(head: str, message: str) -> None:
    peer = Peer(head, BOMB if "gzip" in head else MANY)
    async with listening(peer) as (url, egress), MCPServer(url=url).open_tools(egress) as tools:
        flood, echo = tools
        with pytest.raises(Exception, match=message) as result:
            await flood()
        assert isinstance(result.value, StepInDoubt) == (
            "200 OK" in head
        )  # the call happened, and its result is unknown
        assert peer.sent < 4 * RESPONSE_BYTES_MAX  # and the contents of the sockets' buffers
        assert await echo() == "echo"
        assert peer.encodings == {"identity"}


@pytest.mark.parametrize(
    "head", [f"200 OK\r\n{JSON}", f"200 OK\r\n{EVENTS}\r\ncontent-encoding: br"], ids=["json", "events"]
)
async def test_unreadable_response_aborts_no_other_call_and_is_not_repeated(
    head: str,
) -> None:
    peer = Peer(head)
    async with listening(peer) as (url, egress):
        connection = Connection("peer", None, url, {}, {}, None, 10.0, egress=egress)
        await connection.offered()
        before = connection._link
        with pytest.raises(ToolFailed, match="cannot be read"):
            await connection.call("flood", {}, may_repeat=True)
        assert peer.floods == 1
        assert await connection.call("echo", {}, may_repeat=False) == "echo"
        assert connection._link is before
        await connection.close()


async def test_body_is_read_to_the_bound_for_any_status() -> None:
    for head in (f"307 Temporary Redirect\r\nlocation: /mcp\r\n{EVENTS}", "500 Oh\r\ncontent-type: text/plain"):
        peer = Peer(head)
        async with listening(peer) as (url, egress), http_client(url, {}, egress, local_resolver) as client:
            with pytest.raises(Exception, match="sent more than"):
                await client.post(url, json={"id": 1, "method": "tools/call", "params": {"name": "flood"}})


async def local_resolver(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]
