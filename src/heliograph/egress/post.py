"""POST to a URL from outside the trust boundary, if `policy.egress` allows it.

It speaks minimal HTTP/1.1 over asyncio's streams. The connection goes to a checked address, but under the requested name (SNI,
certificate, Host). It follows no redirect, and reads the response within limits of size and time: its head, and the body
where the caller requests it.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from heliograph.codes import NETWORK_ERROR
from heliograph.error_text import safe_repr
from heliograph.errors import HeliographError
from heliograph.policy.egress import EgressPolicy, Target

SECONDS_MAX = 15.0  # from the name lookup to the response
CONNECT_SECONDS_MAX = 5.0
HEAD_BYTES_MAX = 16_384
_ADDRESSES_MAX = 4
_CHUNKS_MAX = 65_536  # of one body: chunks of one byte would occupy the processor for many seconds
_INTERIM_MAX = 8  # 100 Continue, 103 Early Hints: skipped
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})(?: [^\r\n]*)?\r\n")
_RETRY_AFTER = re.compile(rb"\r\nretry-after:[ \t]*([0-9]{1,9})[ \t]*\r\n", re.IGNORECASE)
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,12})[ \t]*\r\n", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:[ \t]*chunked[ \t]*\r\n", re.IGNORECASE)
_CHUNK = re.compile(rb"([0-9a-fA-F]{1,8})[ \t]*(?:;[^\r\n]*)?\r\n")

_lookups: dict[tuple[str, int], Future[list[Any]]] = {}  # those that have not ended

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


class PostFailed(HeliographError):
    """The server sent no readable response; a retry may succeed."""

    default_code = NETWORK_ERROR
    recoverable = True


@dataclass(frozen=True, slots=True)
class Posted:
    """A response: its status, the seconds of its Retry-After (0 without one), and its body, if the caller reads it.

    body: None if it is not read, or too large.
    """

    status: int
    retry_after_seconds: float = 0.0
    body: bytes | None = None


async def resolved(host: str, port: int) -> list[str]:
    """Resolve a host name to its addresses, with the machine's resolver. Raises OSError.

    All lookups of a name at one time are one: a name whose server does not respond occupies one thread, and delays no others.
    """
    looking_up = _lookups.get((host, port))
    if looking_up is None:
        looking_up = _lookups[host, port] = _resolvers().submit(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        looking_up.add_done_callback(lambda _: _lookups.pop((host, port), None))
    found = await asyncio.shield(asyncio.wrap_future(looking_up))
    return list(dict.fromkeys(str(each[4][0]) for each in found))


async def post(
    url: str, headers: Mapping[str, str], body: bytes, policy: EgressPolicy, *, resolve: Resolve = resolved,
    seconds: float = SECONDS_MAX, body_bytes_max: int = 0,
) -> Posted:  # fmt: skip
    """Send a POST request and return the head of the response, of any status.

    body_bytes_max: read the body as well, if it is not longer; 0 reads none.
    Raises EgressRejected for a forbidden target, and PostFailed without a readable response within `seconds`.
    """
    target = policy.target(url)
    try:
        async with asyncio.timeout(seconds):
            addresses = policy.check(target, await resolve(target.host, target.port))
            return await _exchange(target, addresses, _request(target, headers, body), body_bytes_max)
    except TimeoutError:
        raise PostFailed(
            f"{target.origin} did not answer within {seconds:g} s; check that this server runs and is not overloaded"
        ) from None
    except ssl.SSLError as error:
        raise PostFailed(
            f"{target.origin}: the TLS handshake failed: {safe_repr(error.reason or 'no reason given')}; check its certificate"
        ) from None
    except OSError as error:
        raise PostFailed(
            f"{target.origin} cannot be reached: {safe_repr(error.strerror or type(error).__name__)}; check the URL, the server and the network"
        ) from None


def _request(target: Target, headers: Mapping[str, str], body: bytes) -> bytes:
    fields = {"host": target.authority, "user-agent": "heliograph", "accept": "*/*", "connection": "close",
              "content-type": "application/json", "content-length": str(len(body)), **headers}  # fmt: skip
    lines = [f"POST {target.path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    assert not any("\r" in line or "\n" in line for line in lines), "a header contains a line break"
    return "\r\n".join([*lines, "", ""]).encode("ascii") + body


async def _exchange(target: Target, addresses: Sequence[str], request: bytes, body_bytes_max: int) -> Posted:
    reader, writer = await _connect(target, addresses[:_ADDRESSES_MAX])
    try:
        if writer.is_closing():  # the server has closed the connection, and uvloop raises RuntimeError for a write
            raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        writer.write(request)  # not drained: a server may respond before it has read everything
        posted, head = await _read_head(target, reader)
        return (
            posted
            if not body_bytes_max
            else replace(posted, body=await _read_body(target, reader, head, body_bytes_max))
        )
    finally:
        writer.transport.abort()  # the rest of the response is not needed


async def _connect(target: Target, addresses: Sequence[str]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the first checked address that accepts the connection, never to the name."""
    secure = _tls() if target.scheme == "https" else None
    for n, address in enumerate(addresses, 1):
        try:
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                return await asyncio.open_connection(address, target.port, ssl=secure, limit=HEAD_BYTES_MAX,
                                                     server_hostname=target.host if secure else None)  # fmt: skip
        except (OSError, TimeoutError):
            if n == len(addresses):
                raise
    raise AssertionError("the policy returns at least one address")


async def _read_head(target: Target, reader: asyncio.StreamReader) -> tuple[Posted, bytes]:
    try:
        for _ in range(_INTERIM_MAX):
            head = await reader.readuntil(b"\r\n\r\n")
            found = _STATUS.match(head)
            if found is None:
                raise PostFailed(f"{target.origin} does not speak HTTP/1.1; check the scheme and the port of the URL")
            if not 100 <= (status := int(found[1])) < 200:
                after = _RETRY_AFTER.search(head)
                return Posted(status, float(after[1]) if after is not None else 0.0), head
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        raise PostFailed(
            f"{target.origin} closed the connection within the response's head, or the head is too large; look at the log of this server"
        ) from None
    raise PostFailed(
        f"{target.origin} sent {_INTERIM_MAX} interim responses and no final one; look at the log of this server"
    )


async def _read_body(target: Target, reader: asyncio.StreamReader, head: bytes, bytes_max: int) -> bytes | None:
    """The body, with a declared length, in chunks, or up to the end of the connection; None if it is too large."""
    try:
        if _CHUNKED.search(head):
            return await _read_chunks(target, reader, bytes_max)
        declared = _LENGTH.search(head)
        if declared is not None and int(declared[1]) > bytes_max:
            return None
        if declared is not None:
            return await reader.readexactly(int(declared[1]))
        body = bytearray()
        while len(body) <= bytes_max and (part := await reader.read(bytes_max)):
            body += part
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        raise PostFailed(
            f"{target.origin} closed the connection within the response's body, or sent it malformed; look at the log of this server"
        ) from None
    return bytes(body) if len(body) <= bytes_max else None


async def _read_chunks(target: Target, reader: asyncio.StreamReader, bytes_max: int) -> bytes | None:
    body = bytearray()
    for _ in range(_CHUNKS_MAX):
        found = _CHUNK.match(await reader.readuntil(b"\r\n"))
        if found is None:
            raise PostFailed(f"{target.origin} sent a malformed chunk; look at the log of this server")
        if (size := int(found[1], 16)) == 0:
            return bytes(body)
        if len(body) + size > bytes_max:
            return None
        body += (await reader.readexactly(size + 2))[:size]
    return None


@cache
def _resolvers() -> ThreadPoolExecutor:
    """Threads for lookups of names from outside. One may hang, and must not delay those of the database."""
    return ThreadPoolExecutor(8, thread_name_prefix="heliograph name lookup")


@cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()
