"""The listener of a worker under clients that are slow, wrong, many or hostile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from hashlib import sha256
from http import HTTPStatus

import pytest

from heliograph.errors import SetupError
from heliograph.policy.listening import METRICS, check_listening
from heliograph.status.listener import CONNECTIONS_MAX, Listener, Page, Response

NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)
KEY = "key-of-prometheus"


def entry(scopes: str = METRICS, until: str = "2026-11-26", key: str = KEY) -> str:
    return f"{scopes}:{until}:{sha256(key.encode()).hexdigest()}"


async def page() -> Response:
    return Response(HTTPStatus.OK, "text\n" * 100_000)


async def broken() -> Response:
    raise RuntimeError("password=sesame in /home/u/file.py")


async def live() -> Response:
    return Response(HTTPStatus.OK, "live\n")


PAGES = {"/live": Page(live), "/metrics": Page(page, METRICS), "/broken": Page(broken)}


@asynccontextmanager
async def opened(*keys: str, request_seconds: float = 5.0) -> AsyncIterator[int]:
    """Listen on a free port, and yield it."""
    listener = Listener(check_listening("127.0.0.1:0", keys, NOW), PAGES, lambda: NOW, request_seconds)
    async with listener.open() as url:
        yield int(url.rpartition(":")[2])


async def send(port: int, request: str | bytes, *, ends: bool = False) -> bytes:
    """Send bytes, and return everything that comes back."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request.encode("latin-1") if isinstance(request, str) else request)
    if ends:
        writer.write_eof()
    try:
        async with asyncio.timeout(20):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def status(port: int, path: str = "/live", *headers: str, method: str = "GET", host: str = "127.0.0.1") -> int:
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", *headers]
    answer = await send(port, "\r\n".join(lines) + "\r\n\r\n")
    return int(answer.split(b" ", 2)[1]) if answer else 0


async def test_pages_are_served_completely_and_the_connection_ends() -> None:
    async with opened() as port:
        answer = await send(port, "GET /metrics?a=b HTTP/1.1\r\nHost: localhost:9464\r\n\r\n")
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"connection: close" in head.lower()
        assert body == b"text\n" * 100_000
        head, _, body = (await send(port, "HEAD /metrics HTTP/1.1\r\nHost: [::1]:1\r\n\r\n")).partition(b"\r\n\r\n")
        assert (head.split(b"\r\n")[0], body) == (b"HTTP/1.1 200 OK", b"")
        assert b"content-length: 500000" in head.lower()
        assert (await send(port, "GET /live HTTP/1.0\r\n\r\n")).startswith(b"HTTP/1.1 421")


@pytest.mark.proves("S4")
async def test_metrics_need_a_key_and_probes_need_none() -> None:
    keys = (entry(), entry("metrics@other", key="of another project"), entry(until="2026-11-25", key="expired"))
    async with opened(*keys) as port:
        assert await status(port, "/live", host="pod-7.example") == 200
        assert await status(port, "/metrics", f"Authorization: Bearer {KEY}") == 200
        assert await status(port, "/metrics", f"authorization: bearer  {KEY}") == 200
        for header in ("X: y", "Authorization: Bearer", "Authorization: Bearer wrong", "Authorization: Bearer expired",
                       "Authorization: Bearer of another project", f"Authorization: Basic {KEY}", f"Authorization: Bearer {KEY}x",
                       f"Authorization: Bearer {sha256(KEY.encode()).hexdigest()}"):  # fmt: skip
            assert await status(port, "/metrics", header) == 401, header
        assert await status(port, f"/metrics?key={KEY}") == 401


async def test_wrong_requests_have_their_status() -> None:
    async with opened() as port:
        assert await status(port, "/") == 404
        assert await status(port, "/metrics/../live") == 404
        assert await status(port, "/metrics", method="POST") == 405
        assert await status(port, "/metrics", host="rebound.example") == 421
        assert await status(port, "/metrics", "Host: 127.0.0.1") == 400
        assert await status(port, "/metrics", f"X: {'x' * 20_000}") == 431
        assert await status(port, "/metrics", "no colon") == 400
        assert (await send(port, b"\x16\x03\x01\x02\x00" * 10 + b"\r\n\r\n")).startswith(b"HTTP/1.1 400")
        assert await status(port) == 200


@pytest.mark.proves("S20")
async def test_page_that_fails_reveals_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with opened() as port:
        answer = await send(port, "GET /broken HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 500")
        assert not any(word in answer for word in (b"sesame", b"/home", b"Traceback", b"RuntimeError"))
        assert await status(port) == 200
    assert "the page /broken failed" in caplog.text


async def test_slow_client_loses_its_connection_and_delays_nobody() -> None:
    async with opened(request_seconds=0.5) as port:
        slow = [asyncio.create_task(send(port, "GET /live HTTP/1.1\r\nHost: loc")) for _ in range(5)]
        assert await status(port) == 200
        assert await asyncio.gather(*slow) == [b""] * 5


async def test_clients_that_read_nothing_do_not_keep_a_probe_out() -> None:
    async with opened(request_seconds=30.0) as port:
        rude = [await asyncio.open_connection("127.0.0.1", port, limit=1) for _ in range(2 * CONNECTIONS_MAX)]
        for _, writer in rude:
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert [await status(port) for _ in range(3)] == [200] * 3
        for _, writer in rude:
            writer.close()


@pytest.mark.more
async def test_client_that_reads_nothing_loses_its_connection() -> None:
    async with opened(request_seconds=0.5) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50)
        assert await status(port) == 200
        await asyncio.sleep(1.0)
        assert await status(port) == 200
        writer.close()


async def test_hundreds_of_silent_connections_do_not_keep_a_probe_out() -> None:
    async with opened(request_seconds=30.0) as port:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5 * CONNECTIONS_MAX)]
        assert [await status(port) for _ in range(3)] == [200] * 3
        for _, writer in silent:
            writer.close()


async def test_client_that_ends_at_once_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    async with opened() as port:
        assert await send(port, "", ends=True) == b""
        assert (await send(port, "GET /li", ends=True)).startswith(b"HTTP/1.1 400")
        assert await status(port) == 200
    assert caplog.text == ""


async def test_address_in_use_is_an_error_with_the_setting() -> None:
    async with opened() as port:
        listener = Listener(check_listening(f"127.0.0.1:{port}", (), NOW), PAGES, lambda: NOW)
        with pytest.raises(SetupError, match="HELIOGRAPH_LISTEN") as caught:
            async with listener.open():
                pass
    assert caught.value.code == "address_in_use"
