"""Task events as external listeners receive them on PostgreSQL's channel and on NATS.

Neither wire stores events: an event published without a listener is lost, and the kernel guarantees only its
publication. A listener therefore records the times of its disconnections, in which it may have missed events.
"""

from __future__ import annotations

import asyncio
import json
import time
from abc import ABC, abstractmethod
from collections import Counter
from typing import Any

import asyncpg
import nats.errors
from nats.aio.client import Client

from heliograph.doorbell.nats import flushed
from heliograph.doorbell.postgres import EVENTS_CHANNEL
from heliograph.outbox_records import Event
from heliograph.world.bell_tokens import Tokens
from tests.journeys.chaos.away import AWAY

SUBJECTS = "evt.agent.*.task"
RETRY_SECONDS = 0.02
CATCH_UP_SECONDS = 30.0
LOST = (*AWAY, nats.errors.Error)
SLACK_SECONDS = 1.0  # an event published this shortly before a disconnection may be lost with it


class Listener(ABC):
    """received: how often each event's key arrived. disconnections: their times by the machine's clock."""

    name: str

    def __init__(self) -> None:
        self.received: Counter[str] = Counter()
        self.disconnections: list[tuple[float, float]] = []
        self._lost = asyncio.Event()

    async def listen(self) -> None:
        """Reconnect after each disconnection, until cancelled."""
        while True:
            await self._lost.wait()
            since = time.time() - SLACK_SECONDS
            await self.disconnect()
            await self.connect()
            self.disconnections.append((since, time.time()))

    async def connect(self) -> None:
        """Connect, with retries, and return when the subscription is active; call it before `listen`."""
        while True:
            self._lost = asyncio.Event()  # a new one: an earlier connection may report its end late
            try:
                await self._connect(self._lost)
            except LOST:
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    @abstractmethod
    async def _connect(self, lost: asyncio.Event) -> None:
        """Connect once; the end of this connection sets `lost`."""

    @abstractmethod
    async def disconnect(self) -> None: ...

    async def catch_up(self) -> None:
        """Wait until all events published before this call have arrived. Raises TimeoutError."""
        async with asyncio.timeout(CATCH_UP_SECONDS):
            while True:
                try:
                    await self._answer()
                except LOST:
                    await asyncio.sleep(RETRY_SECONDS)
                else:
                    return

    @abstractmethod
    async def _answer(self) -> None:
        """Wait for a reply that the server sends after all earlier events."""

    def spelled(self, _project: str, key: str, _tokens: Tokens) -> str:
        """Return the key of an event as it appears on this wire."""
        return key

    def was_disconnected(self, since: float, until: float) -> bool:
        return any(begin <= until and since <= end for begin, end in self.disconnections)


class PostgresListener(Listener):
    """A listener on the channel of events, past the proxy."""

    name = "PostgreSQL"

    def __init__(self, url: str):
        super().__init__()
        self._url = url
        self._connection: Any = None

    async def _connect(self, lost: asyncio.Event) -> None:
        self._connection = await asyncpg.connect(self._url, timeout=5)
        self._connection.add_termination_listener(lambda _connection: lost.set())
        await self._connection.add_listener(EVENTS_CHANNEL, self._receive)

    def _receive(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        self.received.update([json.loads(str(payload))["key"]])

    def spelled(self, project: str, key: str, tokens: Tokens) -> str:
        return tokens.opaque(project, Event(0, key, "", {})).key

    async def disconnect(self) -> None:
        self._connection.terminate()

    async def _answer(self) -> None:
        await self._connection.fetchval("select 1", timeout=5)


class NatsListener(Listener):
    """A listener on the subjects of events; keys arrive in the deduplication header."""

    name = "NATS"

    def __init__(self, url: str):
        super().__init__()
        self._url = url
        self._client = Client()

    async def _connect(self, lost: asyncio.Event) -> None:
        async def on_lost() -> None:
            lost.set()

        self._client = Client()
        await self._client.connect(
            self._url, allow_reconnect=False, max_reconnect_attempts=1, reconnect_time_wait=0, connect_timeout=2,
            disconnected_cb=on_lost, error_cb=_ignore,
        )  # fmt: skip
        await self._client.subscribe(SUBJECTS, cb=self._receive)
        await flushed(self._client)

    async def _receive(self, message: Any) -> None:
        self.received.update([message.headers["Nats-Msg-Id"].rpartition("/")[2]])

    async def disconnect(self) -> None:
        await self._client.close()

    async def _answer(self) -> None:
        await self._client.flush(5)


async def _ignore(_error: Exception) -> None:
    """The callback for a lost connection reports the loss already."""
