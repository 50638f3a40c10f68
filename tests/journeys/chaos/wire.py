"""Task events as somebody outside hears them, on PostgreSQL's channel and on NATS, with the times of deafness.

Both wires forget: an event that is told while nobody listens is gone, and the kernel promises only that it was told.
So a listener that lost its connection says since when it may have missed something.
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
from heliograph.records import Event
from heliograph.world.bell_tokens import Tokens
from tests.journeys.chaos.away import AWAY

SUBJECTS = "evt.agent.*.task"
RETRY_SECONDS = 0.02
CATCH_UP_SECONDS = 30.0
LOST = (*AWAY, nats.errors.Error)
SLACK_SECONDS = 1.0  # what was told this shortly before the connection was lost may have been lost with it


class Listener(ABC):
    """heard: how often each event's key was. deaf: when nothing could be, as moments of the machine's clock."""

    name: str

    def __init__(self) -> None:
        self.heard: Counter[str] = Counter()
        self.deaf: list[tuple[float, float]] = []
        self._lost = asyncio.Event()

    async def listen(self) -> None:
        """Until cancelled; connects again whenever the connection is lost."""
        while True:
            await self._lost.wait()
            since = time.time() - SLACK_SECONDS
            await self.disconnect()
            await self.connect()
            self.deaf.append((since, time.time()))

    async def connect(self) -> None:
        """Returns when it listens; before `listen`."""
        while True:
            self._lost = asyncio.Event()  # a new one: a former connection may tell late of its end
            try:
                await self._connect(self._lost)
            except LOST:
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    @abstractmethod
    async def _connect(self, lost: asyncio.Event) -> None:
        """`lost` is set when this connection is."""

    @abstractmethod
    async def disconnect(self) -> None: ...

    async def catch_up(self) -> None:
        """Returns when all that was told before this call has been heard. Raises TimeoutError."""
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
        """Returns when the server has said something after all that it had to say before."""

    def spelled(self, _project: str, key: str, _tokens: Tokens) -> str:
        """How this wire spells the key of an event."""
        return key

    def was_deaf(self, since: float, until: float) -> bool:
        return any(begin <= until and since <= end for begin, end in self.deaf)


class PostgresListener(Listener):
    """On the channel of events, past the proxy."""

    name = "PostgreSQL"

    def __init__(self, url: str):
        super().__init__()
        self._url = url
        self._connection: Any = None

    async def _connect(self, lost: asyncio.Event) -> None:
        self._connection = await asyncpg.connect(self._url, timeout=5)
        self._connection.add_termination_listener(lambda _connection: lost.set())
        await self._connection.add_listener(EVENTS_CHANNEL, self._hear)

    def _hear(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        self.heard.update([json.loads(str(payload))["key"]])

    def spelled(self, project: str, key: str, tokens: Tokens) -> str:
        return tokens.opaque(project, Event(0, key, "", {})).key

    async def disconnect(self) -> None:
        self._connection.terminate()

    async def _answer(self) -> None:
        await self._connection.fetchval("select 1", timeout=5)


class NatsListener(Listener):
    """On the subjects of events; keys come in the header that removes second copies."""

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
        await self._client.subscribe(SUBJECTS, cb=self._hear)
        await flushed(self._client)

    async def _hear(self, message: Any) -> None:
        self.heard.update([message.headers["Nats-Msg-Id"].rpartition("/")[2]])

    async def disconnect(self) -> None:
        await self._client.close()

    async def _answer(self) -> None:
        await self._client.flush(5)


async def _ignore(_error: Exception) -> None:
    """The connection tells of its loss in another way."""
