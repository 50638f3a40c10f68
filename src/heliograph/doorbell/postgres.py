"""The doorbell over LISTEN/NOTIFY. Payloads contain only keys, and delivery is not guaranteed (decision 0025).

Every login of the database may listen and ring, because PostgreSQL has no access rights for channels. So keys and task events are
sent as tokens, which reveal nothing.

Notifications use a separate autocommit connection. Inside a transaction, NOTIFY would keep a cluster-wide lock until the commit is on
disk (docs/internals/kernel.md).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import asyncpg

from heliograph.doorbell.base import Bell
from heliograph.outbox_records import Event

CHANNEL = "heliograph"
EVENTS_CHANNEL = "heliograph_events"
_PAYLOAD_BYTES_MAX = 7900  # NOTIFY accepts less than 8000
_KEYS_MAX = 240  # so many tokens have room in one payload; the rest of a forged payload is ignored
_COMMAND_TIMEOUT_SECONDS = 10.0
_NOTIFY = "select pg_notify($1, payload) from unnest($2::text[]) payload"
# Since version 13, a full queue remains full after all sessions have read it, until this function is called.
_TIDY_QUEUE = "select pg_notification_queue_usage()"
# asyncpg raises InternalClientError for a connection that was lost while idle and is not closed yet
_LOST = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)


class PostgresDoorbell(Bell):
    """Rings all processes on one database."""

    def __init__(self, url: str, on_ring: Callable[[list[str]], None]):
        super().__init__(on_ring)
        self._url = url
        self._connection: Any = None
        self._busy = asyncio.Lock()  # one statement at a time on one connection

    @property
    def is_up(self) -> bool:
        return self._connection is not None and not self._connection.is_closed()

    async def publish(self, events: Sequence[Event]) -> None:
        """Notify `heliograph_events`, with one JSON object of subject, key and body for each event."""
        payloads = [{"subject": event.subject, "key": event.message_id, "body": event.body} for event in events]
        await self._notify(EVENTS_CHANNEL, [json.dumps(each, separators=(",", ":")) for each in payloads])

    async def _connect(self) -> None:
        connection = None
        try:
            connection = await asyncpg.connect(
                self._url, command_timeout=_COMMAND_TIMEOUT_SECONDS,
                server_settings={"application_name": "heliograph bell"},
            )  # fmt: skip
            await connection.add_listener(CHANNEL, self._on_notify)
        except _LOST as error:
            _drop(connection)
            raise ConnectionError(f"the doorbell cannot reach PostgreSQL: {error}") from error
        except BaseException:  # cancelled
            _drop(connection)
            raise
        self._connection = connection

    async def _disconnect(self) -> None:
        if self.is_up:
            await self._connection.close(timeout=2)

    async def _send(self, keys: list[str], _agents: list[str]) -> None:
        await self._notify(CHANNEL, _packed(keys))

    async def _notify(self, channel: str, payloads: Sequence[str]) -> None:
        if not self.is_up:
            raise ConnectionError("the doorbell is not connected to PostgreSQL")
        try:
            async with self._busy:
                try:
                    await self._connection.execute(_NOTIFY, channel, payloads)
                except asyncpg.ProgramLimitExceededError:
                    await self._connection.execute(_TIDY_QUEUE)
                    await self._connection.execute(_NOTIFY, channel, payloads)
        except _LOST as error:
            raise ConnectionError(f"the doorbell's connection to PostgreSQL failed: {error}") from error

    def _on_notify(self, connection: Any, pid: int, _channel: str, payload: object) -> None:
        if pid != connection.get_server_pid():  # the world has delivered this process's own rings
            keys = str(payload).split("\n", _KEYS_MAX)[:_KEYS_MAX]
            self._on_ring([key for key in keys if key != "*"])  # reserved for this bell


def _drop(connection: Any) -> None:
    """Terminate a connection that could not be set up completely."""
    if connection is not None:
        connection.terminate()


def _packed(keys: Iterable[str]) -> list[str]:
    """Join keys by newlines into payloads that NOTIFY accepts. It omits a key that is too long; the sweeps find its work."""
    payloads: list[str] = []
    count = 0  # of keys in the last payload
    for key in keys:
        if len(key.encode()) > _PAYLOAD_BYTES_MAX:
            continue
        if 0 < count < _KEYS_MAX and len(payloads[-1].encode()) + len(key.encode()) + 1 <= _PAYLOAD_BYTES_MAX:
            payloads[-1] += f"\n{key}"
            count += 1
        else:
            payloads.append(key)
            count = 1
    return payloads
