"""A server that does not respond: a proxy before the PostgreSQL of the tests, which can hold all traffic."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit, urlunsplit

import pytest

from heliograph.embedded.cluster import SOCKET
from tests.journeys.chaos.proxy import Proxy


@asynccontextmanager
async def proxied(url: str) -> AsyncIterator[tuple[Proxy, str]]:
    """Yield a proxy of the server, and the URL of the database through it. It skips the test for a server without a socket."""
    parts = urlsplit(url)
    if "host" not in (query := dict(parse_qsl(parts.query))):
        pytest.skip("the proxy needs a server with a socket")
    proxy = Proxy(Path(query["host"]) / SOCKET)
    where = f"{parts.username}:{parts.password}@127.0.0.1:{await proxy.open()}"
    try:
        yield proxy, urlunsplit(parts._replace(netloc=where, query=""))
    finally:
        proxy.release()
        await proxy.close()
