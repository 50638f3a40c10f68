"""An HTTP client for MCP servers that connects only to addresses that the egress policy has checked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager

import httpx2
from mcp.shared._httpx_utils import MCP_DEFAULT_SSE_READ_TIMEOUT, MCP_DEFAULT_TIMEOUT

from heliograph.egress.post import CONNECT_SECONDS_MAX, Resolve
from heliograph.error_text import safe_repr
from heliograph.policy.egress import EgressPolicy, EgressRejected
from heliograph.tools.mcp_failures import rejection_body

RESPONSE_BYTES_MAX = 4 * 1024 * 1024  # four times the limit of a result, because servers send it twice and escaped
_ADDRESSES_MAX = 4
_EVENTS = "text/event-stream"


def http_client(
    url: str, headers: Mapping[str, str], policy: EgressPolicy, resolve: Resolve
) -> AbstractAsyncContextManager[httpx2.AsyncClient]:
    """Return a client for the server at `url`. It sends `headers` to this origin only, also after a redirect.

    Its timeouts are those of the SDK's own client, but a shorter one for connecting, because it may try several addresses. It
    ignores proxy variables in the environment, because a proxy would resolve the name again.
    """
    timeout = httpx2.Timeout(MCP_DEFAULT_TIMEOUT, connect=CONNECT_SECONDS_MAX, read=MCP_DEFAULT_SSE_READ_TIMEOUT)
    return httpx2.AsyncClient(headers=dict(headers), timeout=timeout, follow_redirects=False,
                              transport=_CheckedTransport(policy, resolve, policy.target(url).origin, headers))  # fmt: skip


class _CheckedTransport(httpx2.AsyncBaseTransport):
    def __init__(self, policy: EgressPolicy, resolve: Resolve, origin: str, own: Iterable[str]):
        self._policy = policy
        self._resolve = resolve
        self._origin = origin
        self._own = frozenset(own)  # the names of the headers that only this origin may receive
        self._transports: dict[
            str, httpx2.AsyncHTTPTransport
        ] = {}  # by origin, so that no two names share a connection

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send to the first checked address that accepts the connection, under the requested name (SNI, certificate, Host)."""
        try:
            target = self._policy.target(str(request.url))
            addresses = self._policy.check(target, await self._resolve(target.host, target.port))
        except EgressRejected as refused:
            raise httpx2.ConnectError(refused.message, request=request) from refused
        except OSError as error:
            raise httpx2.ConnectError(f"{request.url.host}: {error.strerror or error}", request=request) from error
        if target.origin not in self._transports:
            self._transports[target.origin] = httpx2.AsyncHTTPTransport()
        withheld = frozenset[str]() if target.origin == self._origin else self._own
        failed: httpx2.TransportError | None = None
        for address in addresses[:_ADDRESSES_MAX]:
            try:
                response = await self._transports[target.origin].handle_async_request(
                    _at_address(request, address, target.host, withheld)
                )
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                failed = error
            else:
                if (body := rejection_body(response.status_code, response.headers)) is not None:
                    await response.aclose()
                    return httpx2.Response(
                        response.status_code, headers={"content-type": "application/json"}, content=body
                    )
                return _bounded(request, response, target.origin)
        assert failed is not None, "the policy returns at least one address"
        raise failed

    async def aclose(self) -> None:
        for transport in self._transports.values():
            await transport.aclose()


def _at_address(request: httpx2.Request, address: str, host: str, withheld: Iterable[str]) -> httpx2.Request:
    """Return the same request, with the same header Host, for an address of its host, without the `withheld` headers."""
    headers = httpx2.Headers(request.headers)
    for name in withheld:
        headers.pop(name, None)
    headers["accept-encoding"] = "identity"  # the limit of size counts bytes as they arrive
    return httpx2.Request(
        request.method, request.url.copy_with(host=address), headers=headers, stream=request.stream,
        extensions={**request.extensions, "sni_hostname": host},
    )  # fmt: skip


def _bounded(request: httpx2.Request, response: httpx2.Response, origin: str) -> httpx2.Response:
    """Limit the size of a response, because many turns share this process.

    The SDK reads a body as a whole. It checks the size of each event itself, and a stream of events may be endless. The two error
    types are those that the SDK attributes to the request; any other error would close the connection for all turns.
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
        del response.headers["content-encoding"]  # nothing decodes a body that is not read
        response.stream = _LimitedBody(stream, 0, error(f"{origin} sent a response in the encoding {safe_repr(encoding)}; configure the "
                                                        "server to send responses without encoding"))  # fmt: skip
    elif not is_events:
        response.stream = _LimitedBody(stream, RESPONSE_BYTES_MAX, error(
            f"{origin} sent more than {RESPONSE_BYTES_MAX} bytes in one response; let the tool return less"))  # fmt: skip
    return response


class _LimitedBody(httpx2.AsyncByteStream):
    """A stream that raises `error` after `bytes_max` bytes."""

    def __init__(self, stream: httpx2.AsyncByteStream, bytes_max: int, error: Exception):
        self._stream = stream
        self._bytes_max = bytes_max
        self._error = error

    async def __aiter__(self) -> AsyncIterator[bytes]:
        remaining = self._bytes_max
        async for part in self._stream:
            remaining -= len(part)
            if remaining < 0:
                raise self._error
            yield part

    async def aclose(self) -> None:
        await self._stream.aclose()
