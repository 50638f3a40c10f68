"""A hostile client of a worker's listener: floods, floods of bytes, requests that are none, and keys in wrong places."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import timedelta
from http import HTTPStatus

import pytest

from heliograph.policy.listening import METRICS, check_listening
from heliograph.status.listener import CONNECTIONS_MAX, Listener, Page, Response
from heliograph.status.shared import Shared
from heliograph.world.event_loop import new_event_loop
from tests.reach.test_status_listener import KEY, NOW, PAGES, entry, opened, send, status

LIVE = b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n"


@asynccontextmanager
async def slow_listener() -> AsyncIterator[tuple[int, asyncio.Event, list[int]]]:
    """Listen with a page /ready that many clients share, and that waits for an event; yield the port, the event and the readings."""
    released, readings = asyncio.Event(), [0]

    async def read() -> Response:
        readings[0] += 1
        await released.wait()
        return Response(HTTPStatus.OK, "ready\n")

    shared = Shared(read, 60.0)
    pages = {**PAGES, "/ready": Page(shared.get)}
    async with Listener(check_listening("127.0.0.1:0", (), NOW), pages, lambda: NOW, 30.0).open() as url:
        yield int(url.rpartition(":")[2]), released, readings
    await shared.close()


class Clients:
    """Connections to a port; all are closed with the context."""

    def __init__(self, port: int):
        self._port = port
        self._writers: list[asyncio.StreamWriter] = []  # a writer that nobody holds closes its connection

    async def __aenter__(self) -> Clients:
        return self

    async def __aexit__(self, *error: object) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def connect(self, request: bytes = b"", address: str = "127.0.0.1") -> asyncio.StreamReader:
        """Connect from an address of this machine, and send a request."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, local_addr=(address, 0))
        self._writers.append(writer)
        writer.write(request)
        return reader


async def pour(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"x" * 65_536)
        await writer.drain()


READY = LIVE.replace(b"live", b"ready")


async def end_of(reader: asyncio.StreamReader) -> bytes:
    """Everything that a client receives; nothing if its connection is reset."""
    try:
        return await asyncio.wait_for(reader.read(), 10)
    except ConnectionError:
        return b""


async def test_live_responds_behind_any_number_of_slow_ready() -> None:
    async with slow_listener() as (port, released, readings), Clients(port) as clients:
        waiting = [await clients.connect(READY) for _ in range(2 * CONNECTIONS_MAX)]
        assert [await status(port) for _ in range(3)] == [200] * 3
        released.set()
        assert (await end_of(waiting[-1])).startswith(b"HTTP/1.1 200 OK")
        assert readings == [1], "clients that end repeat no check"


async def test_flood_of_one_address_ends_no_connection_of_another() -> None:
    async with slow_listener() as (port, released, _), Clients(port) as clients:
        probe = await clients.connect(READY, "127.0.0.2")
        for _ in range(10 * CONNECTIONS_MAX):
            await clients.connect()
        released.set()
        assert (await end_of(probe)).startswith(b"HTTP/1.1 200 OK")


@pytest.mark.more
async def test_connections_of_the_worker_are_bounded_under_a_thousand_clients() -> None:
    async with slow_listener() as (port, _, _), Clients(port) as clients:
        flood = [await clients.connect() for _ in range(1000)]
        assert set(await asyncio.gather(*map(end_of, flood[:-CONNECTIONS_MAX]))) == {b""}
        assert await status(port) == 200


async def test_bytes_after_a_request_end_the_connection() -> None:
    async with opened(request_seconds=30.0) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(LIVE)
        with pytest.raises(ConnectionError):
            await asyncio.wait_for(pour(writer), 10)
        writer.transport.abort()


@pytest.mark.parametrize(
    ("request_bytes", "expected"),
    [(b"GET /live\r\n\r\n", 400), (b"GET /live HTTP/9.9\r\nHost: localhost\r\n\r\n", 200), (b"\r\n" * 20_000, 400),
     (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 421), (b"GET /live HTTP/1.1\nHost: localhost\n\n", 200), (b"\0" * 100 + b"\r\n\r\n", 400),
     (b"GET /live HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", 400),
     (b"GET /live HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n", 400),
     (b"GET /live HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
     (b"GET /live HTTP/1.1\r\nHost: localhost\r\nX: a\r\n b\r\n\r\n", 200), (b"GET /live HTTP/1.1\r\nHost : localhost\r\n\r\n", 400),
     (b"GET http://127.0.0.1/live HTTP/1.1\r\nHost: localhost\r\n\r\n", 404), (b"GET /%6cive HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
     (b"GET /live HTTP/1.1\r\nHost: \xff\xfe\r\n\r\n", 421), (b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
     (b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 431), (b"GET /live HTTP/1.1\r\n\r\n", 400),
     (b"HEAD /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n", 404), (LIVE * 100, 200),
     (b"POST /live HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n", 405)],
)  # fmt: skip
async def test_requests_that_break_the_protocol_have_a_status_and_harm_nobody(
    request_bytes: bytes, expected: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened() as port:
        answer = await send(port, request_bytes, ends=True)
        assert answer.startswith(f"HTTP/1.1 {expected} ".encode()), answer[:80]
        assert answer.count(b"HTTP/1.1 ") == 1
        assert await status(port) == 200
    assert caplog.text == ""


async def test_half_closed_client_still_receives_its_page() -> None:
    async with opened() as port:
        assert (await send(port, LIVE, ends=True)).endswith(b"live\n")


async def test_reset_connections_harm_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async with opened(request_seconds=30.0) as port:
        for request in (b"", b"GET /li", LIVE, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n") * 10:
            client = socket.create_connection(("127.0.0.1", port))
            client.sendall(request)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.close()  # with a reset
            assert await status(port) == 200
    assert caplog.text == ""


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, new_event_loop], ids=["asyncio", "worker"])
def test_client_that_resets_while_its_page_is_read_leaves_no_line_in_the_log(
    loop: Callable[[], asyncio.AbstractEventLoop], caplog: pytest.LogCaptureFixture
) -> None:
    async def reset() -> None:
        async with slow_listener() as (port, released, _):
            client = socket.create_connection(("127.0.0.1", port))
            client.sendall(READY)
            await asyncio.sleep(0.05)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.close()
            await asyncio.sleep(0.05)
            released.set()
            assert await status(port) == 200

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(reset())
    assert caplog.text == ""


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, new_event_loop], ids=["asyncio", "worker"])
def test_client_that_disconnects_while_it_receives_its_page_leaves_no_line_in_the_log(
    loop: Callable[[], asyncio.AbstractEventLoop], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def abandon() -> None:
        async with opened() as port:

            async def gone(writer: asyncio.StreamWriter) -> None:
                if writer.get_extra_info("sockname")[1] == port:
                    writer.transport.abort()
                    await asyncio.sleep(0.01)

            with monkeypatch.context() as leaving:
                leaving.setattr(asyncio.StreamWriter, "drain", gone)
                with suppress(ConnectionError):
                    await send(port, LIVE)
            assert await status(port) == 200

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(abandon())
    assert caplog.text == ""


@pytest.mark.proves("S4")
async def test_key_counts_only_as_the_one_header_of_a_request() -> None:
    async with opened(entry(), entry(key="schlüssel")) as port:
        right = f"Authorization: Bearer {KEY}"
        assert await status(port, "/metrics", right) == 200
        assert await status(port, "/metrics", right, "Authorization: Bearer wrong") == 401
        assert await status(port, "/metrics", "Authorization: Bearer wrong", right) == 401
        assert await status(port, f"/metrics?access_token={KEY}") == 401
        assert (
            await status(
                port, "/metrics", f"Cookie: key={KEY}", f"X-Api-Key: {KEY}", f"Proxy-Authorization: Bearer {KEY}"
            )
            == 401
        )
        as_sent = "schlüssel".encode().decode("latin-1")  # `status` encodes it as Latin-1 again
        assert await status(port, "/metrics", f"Authorization: Bearer {as_sent}") == 200
        assert await status(port, "/metrics", "Authorization: Bearer schlüssel") == 401
        assert await status(port, "/metrics", f"Authorization: Bearer {as_sent}\xa0") == 401


async def test_key_that_expires_while_the_listener_runs_no_longer_opens() -> None:
    day = [NOW]
    listening = check_listening("127.0.0.1:0", [entry()], NOW)
    async with Listener(listening, {"/metrics": Page(PAGES["/live"].read, METRICS)}, lambda: day[0]).open() as url:
        port, header = int(url.rpartition(":")[2]), f"Authorization: Bearer {KEY}"
        assert await status(port, "/metrics", header) == 200
        day[0] += timedelta(days=1)
        assert await status(port, "/metrics", header) == 401


async def test_listener_closes_with_open_connections_at_once() -> None:
    async with AsyncExitStack() as stack:
        async with slow_listener() as (port, _, _):
            clients = await stack.enter_async_context(Clients(port))
            waiting = [await clients.connect(request) for request in (READY, b"", b"GET /li") * 5]
            assert await status(port) == 200
            start = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - start < 2
        assert set(await asyncio.gather(*map(end_of, waiting))) == {b""}
