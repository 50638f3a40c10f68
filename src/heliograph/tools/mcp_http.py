"""HTTP to an MCP server, no further than the policy lets it: each connection goes to an address that was checked (S7)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager

import httpx2
from mcp.shared._httpx_utils import MCP_DEFAULT_SSE_READ_TIMEOUT, MCP_DEFAULT_TIMEOUT

from heliograph.egress.post import CONNECT_SECONDS_MAX, Resolve
from heliograph.errors import safe_repr
from heliograph.policy.egress import EgressPolicy, EgressRejected

ANSWER_BYTES_MAX = 4 * 1024 * 1024  # four times what a result may have: servers say it twice, and escaped
_ADDRESSES_MAX = 4
_EVENTS = "text/event-stream"


def http_client(
    url: str, headers: Mapping[str, str], policy: EgressPolicy, resolve: Resolve
) -> AbstractAsyncContextManager[httpx2.AsyncClient]:
    """A client of the server at `url`, which sends `headers` to that origin and to no other, also after a redirect.

    Its timeouts are those of the SDK's client, except for connecting, because it may try several addresses. It ignores
    proxies of the environment, because a proxy would resolve the name again.
    """
    timeout = httpx2.Timeout(MCP_DEFAULT_TIMEOUT, connect=CONNECT_SECONDS_MAX, read=MCP_DEFAULT_SSE_READ_TIMEOUT)
    return httpx2.AsyncClient(headers=dict(headers), timeout=timeout, follow_redirects=False,
                              transport=_Checked(policy, resolve, policy.target(url).origin, headers))  # fmt: skip


class _Checked(httpx2.AsyncBaseTransport):
    def __init__(self, policy: EgressPolicy, resolve: Resolve, origin: str, own: Iterable[str]):
        self._policy = policy
        self._resolve = resolve
        self._origin = origin
        self._own = frozenset(own)  # the names of the headers that are for this origin alone
        self._transports: dict[str, httpx2.AsyncHTTPTransport] = {}  # by origin: a connection is no other name's

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """To the first of the checked addresses that takes it, under the name that was asked for (SNI, certificate, Host)."""
        try:
            target = self._policy.target(str(request.url))
            addresses = self._policy.check(target, await self._resolve(target.host, target.port))
        except EgressRejected as refused:
            raise httpx2.ConnectError(refused.message, request=request) from refused
        except OSError as error:
            raise httpx2.ConnectError(f"{request.url.host}: {error.strerror or error}", request=request) from error
        if target.origin not in self._transports:
            self._transports[target.origin] = httpx2.AsyncHTTPTransport()
        kept_back = frozenset[str]() if target.origin == self._origin else self._own
        failed: httpx2.TransportError | None = None
        for address in addresses[:_ADDRESSES_MAX]:
            try:
                response = await self._transports[target.origin].handle_async_request(
                    _at(request, address, target.host, kept_back)
                )
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                failed = error
            else:
                return _bounded(request, response, target.origin)
        assert failed is not None, "a target that was checked has an address"
        raise failed

    async def aclose(self) -> None:
        for transport in self._transports.values():
            await transport.aclose()


def _at(request: httpx2.Request, address: str, host: str, kept_back: Iterable[str]) -> httpx2.Request:
    """The same request to an address of its host; the header Host stays as it was. What comes back is to be as long as it looks."""
    headers = httpx2.Headers(request.headers)
    for name in kept_back:
        headers.pop(name, None)
    headers["accept-encoding"] = "identity"
    return httpx2.Request(
        request.method, request.url.copy_with(host=address), headers=headers, stream=request.stream,
        extensions={**request.extensions, "sni_hostname": host},
    )  # fmt: skip


def _bounded(request: httpx2.Request, response: httpx2.Response, origin: str) -> httpx2.Response:
    """The response, of which no more can be read than a process of many turns can hold.

    The SDK reads bodies whole; of events it looks at each by itself, and their stream may go on for ever. What cannot be read
    is an error of its own request: the SDK tells that of these two types, and ends the connection of all others.
    """
    is_events = (
        request.method in ("GET", "POST")
        and response.is_success
        and response.headers.get("content-type", "").lower().startswith(_EVENTS)
    )
    error = httpx2.SSEError if is_events else httpx2.StreamError
    stream = response.stream
    assert isinstance(stream, httpx2.AsyncByteStream)
    if (encoding := response.headers.get("content-encoding", "identity").strip().lower()) not in ("", "identity"):
        del response.headers["content-encoding"]  # nobody decodes what nobody reads
        response.stream = _Body(stream, 0, error(f"{origin} answered in the encoding {safe_repr(encoding)}, which was not asked for; "
                                                 "its answers have to be sent as they are"))  # fmt: skip
    elif not is_events:
        response.stream = _Body(stream, ANSWER_BYTES_MAX, error(f"{origin} answered more than {ANSWER_BYTES_MAX} bytes; an answer "
                                                               "of an MCP server has at most that"))  # fmt: skip
    return response


class _Body(httpx2.AsyncByteStream):
    """The first `most` bytes of a stream, then `error`."""

    def __init__(self, stream: httpx2.AsyncByteStream, most: int, error: Exception):
        self._stream = stream
        self._most = most
        self._error = error

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = self._most
        async for part in self._stream:
            left -= len(part)
            if left < 0:
                raise self._error
            yield part

    async def aclose(self) -> None:
        await self._stream.aclose()
