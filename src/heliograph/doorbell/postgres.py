"""The bell over LISTEN/NOTIFY: no payload but the keys, no promise but speed (decision 7).

Rings go out on an autocommit connection of their own, a millisecond's worth at a
time, never inside a transaction: NOTIFY would hold a cluster-wide lock over the
flush (kernel.md section 6). A lost connection is made again; what was rung
meanwhile is found by the sweep and the poll bound.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterable
from typing import Any

import asyncpg

log = logging.getLogger("heliograph.doorbell")

CHANNEL = "heliograph"
EVENTS_CHANNEL = "heliograph_events"
_DEBOUNCE_SECONDS = 0.001
_PAYLOAD_BYTES_MAX = 7900  # NOTIFY takes less than 8000
_RECONNECT_SECONDS = 0.5


class PostgresDoorbell:
    """Rings all processes on one database. `on_ring` is called with the keys, in the event loop."""

    def __init__(self, url: str, on_ring: Callable[[list[str]], None]):
        self._url = url
        self._on_ring = on_ring
        self._connection: Any = None
        self._due: set[str] = set()
        self._wake = asyncio.Event()
        self._busy = asyncio.Lock()  # one statement at a time on one connection
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        await self._connect()
        self._tasks = [asyncio.create_task(self._send_loop(), name="doorbell send"),
                       asyncio.create_task(self._keep_loop(), name="doorbell keep")]  # fmt: skip

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._connection is not None and not self._connection.is_closed():
            await self._connection.close(timeout=2)

    def ring(self, keys: Iterable[str]) -> None:
        self._due.update(keys)
        self._wake.set()

    async def publish(self, subject: str, key: str, body: dict[str, Any]) -> None:
        """One event to everybody who listens on `heliograph_events`. Raises OSError where it cannot be sent now."""
        text = json.dumps({"subject": subject, "key": key, "body": body}, separators=(",", ":"))
        if self._connection is None or self._connection.is_closed():
            raise ConnectionError("the doorbell's connection is gone")
        try:
            await self._notify(EVENTS_CHANNEL, text)
        except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            raise ConnectionError(str(error)) from error

    async def _notify(self, channel: str, payload: str) -> None:
        async with self._busy:
            await self._connection.execute("select pg_notify($1, $2)", channel, payload)

    async def _connect(self) -> None:
        connection = await asyncpg.connect(
            self._url, command_timeout=10, server_settings={"application_name": "heliograph bell"}
        )
        await connection.add_listener(CHANNEL, self._heard)
        self._connection = connection

    def _heard(self, _connection: Any, _pid: int, _channel: str, payload: object) -> None:
        self._on_ring(str(payload).split("\n"))

    async def _keep_loop(self) -> None:
        """Notice a lost connection and make it again; then ring everything here, for what may have been missed."""
        while True:
            await asyncio.sleep(_RECONNECT_SECONDS)
            if not self._connection.is_closed():
                continue
            try:
                await self._connect()
                self._on_ring(["*"])
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                log.warning("the doorbell cannot reach PostgreSQL: %s", error)

    async def _send_loop(self) -> None:
        while True:
            await self._wake.wait()
            await asyncio.sleep(_DEBOUNCE_SECONDS)
            self._wake.clear()
            keys, self._due = sorted(self._due), set()
            try:
                for payload in _packed(keys):
                    await self._notify(CHANNEL, payload)
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                log.info("a ring was lost: %s", error)


def _packed(keys: Iterable[str]) -> list[str]:
    """Keys joined by newlines, in payloads that NOTIFY takes; a key that fits in none is left to the sweep."""
    payloads: list[str] = []
    for key in keys:
        if len(key.encode()) > _PAYLOAD_BYTES_MAX:
            continue
        if payloads and len(payloads[-1].encode()) + len(key.encode()) + 1 <= _PAYLOAD_BYTES_MAX:
            payloads[-1] += f"\n{key}"
        else:
            payloads.append(key)
    return payloads
