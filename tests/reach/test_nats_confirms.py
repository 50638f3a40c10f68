"""Confirmation of events on NATS, with a server of scripted answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from heliograph.doorbell import nats
from heliograph.doorbell.nats import NatsDoorbell
from heliograph.outbox_records import Event
from heliograph.testing.conformance import RecordedRings, eventually

HELLO = b'INFO {"server_id":"x","version":"2.10.0","max_payload":1048576,"headers":true,"proto":1}\r\n'
EVENT = Event(1, "evt:turn_1", "evt.agent.run_1.task", {"n": 1}, project="shop", target="till")


class OddServer:
    """A server with the part of the protocol that a bell needs. confirmed: the bytes read before its last reply to a ping."""

    def __init__(self) -> None:
        self.answers_pings = True
        self.is_stuck = False
        self.writers: list[asyncio.StreamWriter] = []
        self.unanswered: list[asyncio.StreamWriter] = []
        self.confirmed = b""
        self.connections = 0
        self.ended = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        writer.write(HELLO)
        read = b""
        while line := await reader.readline():
            if self.is_stuck:
                await writer.wait_closed()
            read += line
            if line != b"PING\r\n":
                continue
            if self.answers_pings:
                writer.write(b"PONG\r\n")
                self.confirmed = read
            else:
                self.unanswered.append(writer)
        self.ended += 1
        writer.close()

    def answer_late(self) -> None:
        for writer in self.unanswered:
            writer.write(b"PONG\r\n")


@pytest_asyncio.fixture
async def server() -> OddServer:
    return OddServer()


@pytest_asyncio.fixture
async def bell(server: OddServer) -> AsyncIterator[NatsDoorbell]:
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    bell = NatsDoorbell(f"nats://127.0.0.1:{listening.sockets[0].getsockname()[1]}", RecordedRings())
    await bell.open()
    assert bell.is_up
    yield bell
    await bell.close()
    listening.close()


@pytest.mark.proves("L0-04", "L0-107", "G-61")
async def test_event_is_confirmed_when_the_server_has_read_it_and_not_by_any_pong(
    bell: NatsDoorbell, server: OddServer
) -> None:
    assert b"SUB cmd.agent.*.wakeup" in server.confirmed
    for n in range(1, 21):
        await bell.publish([EVENT])
        assert server.confirmed.count(b"Nats-Msg-Id: shop/till/evt:turn_1") == n
        assert server.confirmed.endswith(b"PING\r\n")


@pytest.mark.proves("L0-04", "L0-107", "G-61")
async def test_no_event_is_confirmed_on_a_connection_with_an_overdue_ping(
    bell: NatsDoorbell, server: OddServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nats, "_TIMEOUT_SECONDS", 0.05)
    server.answers_pings = False
    with pytest.raises(OSError, match="did not confirm"):
        await bell.publish([EVENT])
    monkeypatch.setattr(nats, "_TIMEOUT_SECONDS", 5)
    with pytest.raises(OSError, match="not connected to NATS"):
        await bell.publish([EVENT])
    server.answer_late()
    server.answers_pings, server.confirmed = True, b""
    await eventually(lambda: bell.is_up)
    assert server.connections == 2
    await eventually(lambda: server.ended == 1)
    await bell.publish([EVENT])
    assert b"Nats-Msg-Id: shop/till/evt:turn_1" in server.confirmed


@pytest.mark.proves("L0-04", "G-61")
async def test_cancelled_publisher_keeps_the_connection_usable(bell: NatsDoorbell, server: OddServer) -> None:
    server.answers_pings = False
    publishing = asyncio.create_task(bell.publish([EVENT]))
    await eventually(lambda: len(server.unanswered) > 0)
    publishing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await publishing
    assert bell.is_up
    server.answers_pings = True
    server.answer_late()
    await bell.publish([EVENT])
    assert server.confirmed.count(b"Nats-Msg-Id: shop/till/evt:turn_1") == 2
    assert server.connections == 1


async def test_close_does_not_wait_for_a_server_that_stopped_reading(
    server: OddServer, bell: NatsDoorbell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nats, "_TIMEOUT_SECONDS", 0.2)
    stuck = NatsDoorbell(bell._urls[0], RecordedRings())
    await stuck.open()
    server.is_stuck = True
    async with asyncio.timeout(60):
        # publishing blocks, or where asyncio buffers without bound (3.12 before 3.12.9, 3.13 before 3.13.2) the ping does
        with pytest.raises(OSError, match=r"(does not read what is published|did not confirm)"):
            await stuck.publish(
                [Event(n, f"evt:turn_{n}", "evt.agent.a.task", {"n": "x" * 500_000}) for n in range(40)]
            )
        assert not stuck.is_up
        await stuck.close()
    for writer in server.writers:
        writer.transport.abort()


async def test_event_too_large_for_nats_is_skipped_without_delay(
    bell: NatsDoorbell, server: OddServer, caplog: pytest.LogCaptureFixture
) -> None:
    await bell.publish([Event(1, "cmd:turn_1:c1", "cmd.tool.x", {"n": "x" * (1 << 20)}), EVENT])
    assert server.confirmed.count(b"Nats-Msg-Id") == 1
    assert "cmd:turn_1:c1 has 1048584 bytes, more than max_payload of this NATS server" in caplog.text
    assert bell.is_up


@pytest.mark.more
@pytest.mark.proves("S6", "L0-107")
async def test_invalid_subject_does_not_break_confirmations(bell: NatsDoorbell, server: OddServer) -> None:
    """nats-py stops reading at it without an error: later messages are not confirmed, and are published again."""
    server.writers[-1].write(b"MSG cmd.agent.\xff.wakeup 1 0\r\n\r\n")
    server.answers_pings = False
    await eventually(bell._client._reading_task.done)
    server.answers_pings = True
    server.confirmed = b""
    with pytest.raises(OSError, match="did not confirm"):
        await bell.publish([EVENT])
    await eventually(lambda: bell.is_up)
    await bell.publish([EVENT])
    assert server.confirmed.count(b"Nats-Msg-Id: shop/till/evt:turn_1") == 1
