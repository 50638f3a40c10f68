"""The doorbell over LISTEN/NOTIFY keeps the contract."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest
import pytest_asyncio

from heliograph.doorbell.postgres import CHANNEL, EVENTS_CHANNEL, PostgresDoorbell
from heliograph.testing.conformance import DoorbellConformance, OnWire, RecordedRings
from heliograph.testing.database import TestServer


class PostgresGround:
    """A database as the wire; it is cut by rejecting connections to it."""

    def __init__(self, server: TestServer, url: str, admin: asyncpg.Connection):
        self._server = server
        self._url = url
        self._name = urlsplit(url).path.lstrip("/")
        self._admin = admin
        self._opened: list[asyncpg.Connection] = []

    def make(self, on_ring: Callable[[list[str]], None]) -> PostgresDoorbell:
        return PostgresDoorbell(self._url, on_ring)

    async def cut(self) -> None:
        await self._admin.execute(f'alter database "{self._name}" allow_connections false')
        await self._admin.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = $1", self._name
        )

    async def restore(self) -> None:
        await self._admin.execute(f'alter database "{self._name}" allow_connections true')

    async def forge(self, text: str) -> None:
        await (await self._connect()).execute("select pg_notify($1, $2)", CHANNEL, text)

    async def listen(self) -> asyncio.Queue[OnWire]:
        events: asyncio.Queue[OnWire] = asyncio.Queue()

        def receive(_connection: Any, _pid: int, _channel: str, payload: object) -> None:
            event = json.loads(str(payload))
            events.put_nowait((event["subject"], event["key"], event["body"]))

        await (await self._connect()).add_listener(EVENTS_CHANNEL, receive)
        return events

    async def close(self) -> None:
        for connection in self._opened:
            await connection.close()

    async def _connect(self) -> asyncpg.Connection:
        self._opened.append(await asyncpg.connect(self._url))
        return self._opened[-1]


class TestPostgresDoorbell(DoorbellConformance):
    @pytest_asyncio.fixture
    async def ground(self, postgres: TestServer, database_url: str) -> AsyncIterator[PostgresGround]:
        admin = await asyncpg.connect(postgres.admin_url)
        made = PostgresGround(postgres, database_url, admin)
        yield made
        await made.restore()
        await made.close()
        await admin.close()


async def test_more_keys_than_one_notify_takes_all_arrive(database_url: str) -> None:
    rings = RecordedRings()
    local, remote = PostgresDoorbell(database_url, RecordedRings()), PostgresDoorbell(database_url, rings)
    await local.open()
    await remote.open()
    keys = [f"log:run_{'x' * 80}_{n:04}" for n in range(500)]
    local.ring([*keys, "log:" + "too long for a notification " * 300])
    await rings.wait_for(keys[-1])
    assert rings.keys == keys
    await local.close()
    await remote.close()


async def test_bell_cancelled_while_it_connects_has_no_open_connection(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    listening: asyncio.Queue[asyncpg.Connection] = asyncio.Queue()

    async def hang(connection: asyncpg.Connection, *_args: object) -> None:
        listening.put_nowait(connection)
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncpg.Connection, "add_listener", hang)
    opening = asyncio.create_task(PostgresDoorbell(database_url, lambda _keys: None).open())
    connection = await listening.get()
    opening.cancel()
    await asyncio.gather(opening, return_exceptions=True)
    assert connection.is_closed()


async def test_bell_with_a_cancelled_close_has_no_running_task(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sending = asyncio.Event()

    async def hang(_bell: PostgresDoorbell, _keys: list[str], _agents: list[str]) -> None:
        sending.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(PostgresDoorbell, "_send", hang)
    bell = PostgresDoorbell(database_url, lambda _keys: None)
    await bell.open()
    loops = list(bell._tasks)
    bell.ring(["work:newsroom"])
    await sending.wait()
    closing = asyncio.create_task(bell.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing, *loops])
    await bell._disconnect()
