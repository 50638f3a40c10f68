"""HTTP to an MCP server, no further than the policy lets it: each connection goes to an address that was checked (S7)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager

import httpx2
from mcp.shared._httpx_utils import MCP_DEFAULT_SSE_READ_TIMEOUT, MCP_DEFAULT_TIMEOUT

from heliograph.egress.post import Resolve
from heliograph.policy.egress import EgressPolicy, EgressRefused

_ADDRESSES_MAX = 4


def http_client(
    headers: Mapping[str, str], policy: EgressPolicy, resolve: Resolve
) -> AbstractAsyncContextManager[httpx2.AsyncClient]:
    """A client with the timeouts of the SDK's own. No proxy of the environment: it would look the name up once more."""
    timeout = httpx2.Timeout(MCP_DEFAULT_TIMEOUT, read=MCP_DEFAULT_SSE_READ_TIMEOUT)
    return httpx2.AsyncClient(headers=dict(headers), timeout=timeout, transport=_Checked(policy, resolve))


class _Checked(httpx2.AsyncBaseTransport):
    def __init__(self, policy: EgressPolicy, resolve: Resolve):
        self._policy = policy
        self._resolve = resolve
        self._transports: dict[str, httpx2.AsyncHTTPTransport] = {}  # by origin: a connection is no other name's

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """To the first of the checked addresses that takes it, under the name that was asked for (SNI, certificate, Host)."""
        try:
            target = self._policy.target(str(request.url))
            addresses = self._policy.check(target, await self._resolve(target.host, target.port))
        except EgressRefused as refused:
            raise httpx2.ConnectError(refused.message, request=request) from refused
        except OSError as error:
            raise httpx2.ConnectError(f"{request.url.host}: {error.strerror or error}", request=request) from error
        if target.origin not in self._transports:
            self._transports[target.origin] = httpx2.AsyncHTTPTransport()
        failed: httpx2.TransportError | None = None
        for address in addresses[:_ADDRESSES_MAX]:
            try:
                return await self._transports[target.origin].handle_async_request(_at(request, address, target.host))
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                failed = error
        assert failed is not None, "a target that was checked has an address"
        raise failed

    async def aclose(self) -> None:
        for transport in self._transports.values():
            await transport.aclose()


def _at(request: httpx2.Request, address: str, host: str) -> httpx2.Request:
    """The same request to an address of its host; the header Host stays as it was."""
    return httpx2.Request(
        request.method, request.url.copy_with(host=address), headers=request.headers, stream=request.stream,
        extensions={**request.extensions, "sni_hostname": host},
    )  # fmt: skip
