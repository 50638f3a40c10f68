"""When an event counts as published on NATS, seen from a server that answers as it is told to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from heliograph.doorbell import nats
from heliograph.doorbell.nats import NatsDoorbell
from heliograph.records import Event
from heliograph.testing.conformance import Heard, eventually

HELLO = b'INFO {"server_id":"x","version":"2.10.0","max_payload":1048576,"headers":true,"proto":1}\r\n'
EVENT = Event(1, "evt:turn_1", "evt.agent.run_1.task", {"n": 1})


class OddServer:
    """Speaks as much of the protocol as a bell needs. confirmed: what it had read when it last answered a ping."""

    def __init__(self) -> None:
        self.answers_pings = True
        self.owed: list[asyncio.StreamWriter] = []
        self.confirmed = b""
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        writer.write(HELLO)
        read = b""
        while line := await reader.readline():
            read += line
            if line != b"PING\r\n":
                continue
            if self.answers_pings:
                writer.write(b"PONG\r\n")
                self.confirmed = read
            else:
                self.owed.append(writer)
        writer.close()

    def answer_late(self) -> None:
        for writer in self.owed:
            writer.write(b"PONG\r\n")


@pytest_asyncio.fixture
async def server() -> OddServer:
    return OddServer()


@pytest_asyncio.fixture
async def bell(server: OddServer) -> AsyncIterator[NatsDoorbell]:
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    bell = NatsDoorbell(f"nats://127.0.0.1:{listening.sockets[0].getsockname()[1]}", Heard())
    await bell.open()
    assert bell.is_up
    yield bell
    await bell.close()
    listening.close()


@pytest.mark.proves("L0-04", "L0-107", "G-61")
async def test_an_event_counts_when_the_server_has_read_it_and_not_when_it_has_answered_a_ping(
    bell: NatsDoorbell, server: OddServer
) -> None:
    assert b"SUB cmd.agent.*.wakeup" in server.confirmed
    for _ in range(20):
        server.confirmed = b""
        await bell.publish([EVENT])
        assert server.confirmed.count(b"Nats-Msg-Id: evt:turn_1") > 0
        assert server.confirmed.endswith(b"PING\r\n")


@pytest.mark.proves("L0-04", "L0-107", "G-61")
async def test_no_event_counts_on_a_connection_whose_pings_were_once_answered_too_late(
    bell: NatsDoorbell, server: OddServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nats, "_TIMEOUT_SECONDS", 0.05)
    server.answers_pings = False
    with pytest.raises(OSError, match="did not confirm"):
        await bell.publish([EVENT])
    monkeypatch.setattr(nats, "_TIMEOUT_SECONDS", 5)
    with pytest.raises(OSError, match="is gone"):
        await bell.publish([EVENT])
    server.answer_late()
    server.answers_pings, server.confirmed = True, b""
    await eventually(lambda: bell.is_up)
    assert server.connections == 2
    await bell.publish([EVENT])
    assert b"Nats-Msg-Id: evt:turn_1" in server.confirmed


async def test_a_publish_that_is_cancelled_leaves_no_connection_behind_that_confirms_nothing(
    bell: NatsDoorbell, server: OddServer
) -> None:
    server.answers_pings = False
    publishing = asyncio.create_task(bell.publish([EVENT]))
    await eventually(lambda: len(server.owed) > 0)
    publishing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await publishing
    assert not bell.is_up
