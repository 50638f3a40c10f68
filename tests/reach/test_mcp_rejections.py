"""An MCP server over HTTP that rejects requests by their HTTP status: the code, the delay, and no secret in any text."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import pytest

from heliograph.errors import HarnessError
from heliograph.policy.egress import EgressPolicy
from heliograph.tools import MCPServer

KEY = "sk-live-0123456789abcdef"


@asynccontextmanager
async def answering(status: str, *headers: str) -> AsyncIterator[str]:
    """A server that answers every request with this status, and quotes the credentials. Returns its origin."""
    body = f"the key {KEY} is not known".encode()
    head = "\r\n".join(
        [f"HTTP/1.1 {status}", "content-type: text/plain", f"content-length: {len(body)}", *headers, "", ""]
    )

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                request = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                length = next((line for line in request.split("\r\n") if line.startswith("content-length:")), "0")
                await reader.readexactly(int(length.rpartition(":")[2]))
                writer.write(head.encode() + body)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


@pytest.mark.proves("ERR-11", "G-03")
@pytest.mark.parametrize(
    ("status", "headers", "code", "recoverable", "delay"),
    [
        ("401 Unauthorized", [], "AUTH_ERROR", False, 0), ("403 Forbidden", [], "AUTH_ERROR", False, 0),
        ("429 Too Many Requests", ["retry-after: 7"], "RATE_LIMITED", True, 7),
        ("429 Too Many Requests", ["retry-after: soon"], "RATE_LIMITED", True, 0),
        ("503 Unavailable", [], "MCP_UNAVAILABLE", True, 0),
    ],
)  # fmt: skip
async def test_rejection_by_status_has_the_code_and_the_delay_of_that_status(
    status: str, headers: Sequence[str], code: str, recoverable: bool, delay: int
) -> None:
    async with answering(status, *headers) as origin:
        server = MCPServer(url=f"{origin}/mcp", name="files", headers={"authorization": f"Bearer {KEY}"})
        with pytest.raises(HarnessError) as rejected:
            async with server.open_tools(EgressPolicy(frozenset({origin}))):
                pass
    error = rejected.value
    assert (error.code, error.recoverable, error.retry_after_seconds) == (code, recoverable, delay)
    assert KEY not in f"{error.message} {error.details}"
    if code != "MCP_UNAVAILABLE":
        after = {"retry_after_ms": delay * 1000} if delay else {}
        assert error.details == {"mcp_server": "files", "status": int(status[:3]), **after}
