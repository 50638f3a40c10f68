"""The doorbell over core NATS, for many nodes. The subject is the key, and no worker reads the body (decision 0009).

    work:<target>      cmd.agent.<target>.wakeup         L0-32, L0-105; the target is a pool of workers, and the body has
                                                         {"agent_id": the first agent with work, "metadata":
                                                         {"agent_ids": all of them}}, if they are known (G-72)
    <token>            heliograph.bell.<token>           any other key, as a keyed hash (S25)
    a task event       evt.agent.<agent id>.task         L0-71, L0-107; its header Nats-Msg-Id: project/application/key
    a step             evt.agent.<agent id>.step         L0-108; sent once, without a guarantee and without a key
    a state            evt.agent.<agent id>.state        L0-113; like a step, at most ten a second
    a command          cmd.tool.<tool>                   L0-51; repeated until the call is answered; with the headers of its trace

A name is one token of a subject. Letters, digits, '_' and '-' stand for themselves, every other byte is
percent-encoded: agent `run_7f/critic` publishes on `evt.agent.run_7f%2Fcritic.task`. So `evt.agent.*.task` receives the
events of every agent, and no name contains a wildcard or a second token.

It does not use JetStream: a crash can lose its acknowledgements, and the doorbell does not need them. An event counts as published
once the server has answered a ping that followed it (`flushed`). If the operator creates a stream over `evt.>`, it removes duplicates
by the header.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import msgspec

from heliograph.doorbell.base import Bell
from heliograph.errors import SetupError
from heliograph.outbox_records import Event
from heliograph.world.cancellation import cancel

try:
    from nats.aio.client import Client
    from nats.errors import Error as NatsError
    from nats.errors import MaxPayloadError
except ImportError as error:
    raise SetupError("HELIOGRAPH_NATS_URL needs the NATS client: pip install 'heliograph[nats]'",
                     code="no_nats_library") from error  # fmt: skip

log = logging.getLogger("heliograph.doorbell")

_WAKEUP = "cmd.agent.{}.wakeup"
_BELL = "heliograph.bell.{}"
_TIMEOUT_SECONDS = 2
_EVENTS_MAX = 1000  # in one batch; older ones are dropped
# nats-py blocks publishers while the server does not read, each for the timeout, and loses their cancellations
_NOT_READING = "the NATS server does not read what is published"
_PING_SECONDS = 10  # a lost server is detected after two of these


class NatsDoorbell(Bell):
    """Rings all processes on one NATS server or cluster."""

    carries_names = True
    carries_commands = True
    has_observers = True

    def __init__(self, url: str, on_ring: Callable[[list[str]], None]):
        """url: one URL, or several separated by commas. Raises SetupError (`invalid_url`)."""
        super().__init__(on_ring)
        self._urls = [part.strip() for part in url.split(",")]
        self._client: Any = None
        self._at_work: set[asyncio.Task[None]] = set()
        self._events: deque[tuple[str, dict[str, Any]]] = deque(maxlen=_EVENTS_MAX)
        if not all(_is_url(part) for part in self._urls):
            raise SetupError("HELIOGRAPH_NATS_URL is malformed; write it as nats://user:password@host:4222",
                             code="invalid_url")  # fmt: skip

    @property
    def is_up(self) -> bool:
        return self._client is not None and self._client.is_connected

    async def publish(self, events: Sequence[Event]) -> None:
        # shielded, so that the cancellation of a caller does not cut off the rest of the batch
        await asyncio.shield(self._beside(self._publish(events), "doorbell publish"))

    async def _publish(self, events: Sequence[Event]) -> None:
        client, clock = self._connected(), asyncio.get_running_loop().time
        until = clock() + _TIMEOUT_SECONDS
        try:
            for event in events:
                if clock() > until:
                    self._drain(client)
                    raise ConnectionError(_NOT_READING)
                body, key = msgspec.json.encode(event.body), event.key
                try:
                    headers = {**event.body.get("trace", {}), "Nats-Msg-Id": event.message_id}
                    await client.publish(safe_subject(event.subject), body, headers=headers)
                except MaxPayloadError:  # skipped, because it would block all later events; the ledger still has it
                    log.error("%s has %d bytes, more than max_payload of this NATS server, so it is not published on NATS", key, len(body))  # fmt: skip
        except NatsError as error:
            raise ConnectionError(f"NATS: {error}") from error
        try:
            await flushed(client)
        except (NatsError, TimeoutError) as error:
            self._drain(client)
            raise ConnectionError(f"the NATS server did not confirm: {error}") from error

    def _drain(self, client: Any) -> None:
        """Stop using a connection, because a late answer to an abandoned ping would end its reading."""
        if self._client is client:
            self._client = None
        self._beside(_closed(client), "doorbell closes a connection")

    def _beside(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run `work` even if its caller is cancelled; `close` waits for it."""
        task = asyncio.create_task(work, name=name)
        self._at_work.add(task)
        task.add_done_callback(self._is_done)
        return task

    def _is_done(self, task: asyncio.Task[None]) -> None:
        self._at_work.discard(task)
        if not task.cancelled():
            task.exception()  # marked as retrieved, because a waiting caller receives it

    async def _connect(self) -> None:
        # a new client for each connection, because the base class reconnects
        client = Client()
        try:
            await client.connect(
                self._urls, name="heliograph bell", no_echo=True, allow_reconnect=False, max_reconnect_attempts=1,
                reconnect_time_wait=0, connect_timeout=_TIMEOUT_SECONDS, flush_timeout=_TIMEOUT_SECONDS,
                ping_interval=_PING_SECONDS,
                error_cb=_note, disconnected_cb=_note_lost,
            )  # fmt: skip
            for pattern in (_WAKEUP.format("*"), _BELL.format("*")):
                await client.subscribe(pattern, cb=self._on_message)
            await flushed(client)
        except (NatsError, OSError) as error:
            self._drain(client)
            raise ConnectionError(f"the doorbell cannot reach NATS at {self._where()}: {error}") from error
        except asyncio.CancelledError:
            self._drain(client)
            raise
        self._client = client

    async def _disconnect(self) -> None:
        await self._settle()
        if self._client is not None:
            await _closed(self._client)
        await self._settle()

    async def _settle(self) -> None:
        """Wait for the tasks of `_beside`. Each has its own timeout, but nats-py may lose its cancellation."""
        if self._at_work:
            _, late = await asyncio.wait(set(self._at_work), timeout=2 * _TIMEOUT_SECONDS)
            await cancel(late)

    def publish_event(self, subject: str, body: dict[str, Any]) -> None:
        self._events.append((subject, body))
        self._wake.set()

    async def _send(self, keys: list[str], agents: list[str]) -> None:
        events, self._events = self._events, deque(maxlen=_EVENTS_MAX)
        client, clock, task = self._connected(), asyncio.get_running_loop().time, asyncio.current_task()
        until = clock() + _TIMEOUT_SECONDS
        # a hint for observers; a worker looks for all work of its pool (S6)
        hint = msgspec.json.encode({"agent_id": agents[0] if agents else None, "metadata": {"agent_ids": agents}})
        try:
            for key in keys:
                await client.publish(subject_of(key), hint if key.startswith("work:") else b"")
            for subject, body in events:
                if clock() > until or (task and task.cancelling()):
                    raise ConnectionError(_NOT_READING)
                await client.publish(safe_subject(subject), msgspec.json.encode(body))
        except (NatsError, TimeoutError) as error:
            raise ConnectionError(f"NATS: {error}") from error

    async def _on_message(self, message: Any) -> None:
        key = key_of(message.subject)
        if key is not None and key != "*":  # reserved for this bell
            self._on_ring([key])

    def _connected(self) -> Any:
        if not self.is_up:
            raise ConnectionError("the doorbell is not connected to NATS")
        return self._client

    def _where(self) -> str:
        return ", ".join(urlsplit(url).hostname or "?" for url in self._urls)  # never the password


async def flushed(client: Any) -> None:
    """Wait until the server has read everything that was published and subscribed before. Raises NatsError, TimeoutError.

    It pings twice, because nats-py writes a ping at once but published messages later, from another task. The first answer shows that
    this task has run, the second that the server has read its output. It uses `rtt`, because `flush` returns without an answer if the
    client has stopped reading.
    """
    for _ in range(2):
        await client.rtt(_TIMEOUT_SECONDS)


async def _closed(client: Any) -> None:
    """Close a connection within the timeout, because a server that does not read would block it forever."""
    closing: asyncio.Task[None] = asyncio.create_task(client.close(), name="doorbell closes NATS")
    try:
        await asyncio.wait({closing}, timeout=_TIMEOUT_SECONDS)
    finally:
        await cancel({closing})
    if closing.done() and not closing.cancelled():
        with suppress(NatsError, OSError):
            closing.result()


def subject_of(key: str) -> str:
    """Return the subject of a key."""
    kind, _, name = key.partition(":")
    return _WAKEUP.format(_token(name)) if kind == "work" else _BELL.format(_token(key))


def key_of(subject: str) -> str | None:
    """Return the key of a subject; None for a subject that is not a bell's."""
    match subject.split("."):
        case ["cmd", "agent", target, "wakeup"]:
            return f"work:{unquote(target)}"
        case ["heliograph", "bell", name]:
            return unquote(name)
    return None


def safe_subject(subject: str) -> str:
    """Convert a subject of the ledger to a valid subject of NATS: each part between two dots becomes one token."""
    return ".".join(_token(part) for part in subject.split("."))


def _token(name: str) -> str:
    return quote(name, safe="").replace(".", "%2E").replace("~", "%7E") or "%"


def _is_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("nats", "tls") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


async def _note(error: Exception) -> None:
    log.info("NATS: %s", str(error) or type(error).__name__)


async def _note_lost() -> None:
    log.info("the doorbell's connection to NATS was lost")
