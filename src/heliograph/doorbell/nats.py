"""The bell over core NATS, for many nodes: the subject is the key, and what a message says is never read (decision 0009).

    work:<target>      cmd.agent.<target>.wakeup         L0-32, L0-105; the target is a pool of workers, and the body has
                                                         {"agent_id": the first agent with work, "metadata":
                                                         {"agent_ids": all of them}}, as far as they are known (G-72)
    <token>            heliograph.bell.<token>           what a process asks of others, as a keyed hash (S25)
    a task event       evt.agent.<agent id>.task         L0-71, L0-107; its header Nats-Msg-Id: project/application/key
    a step             evt.agent.<agent id>.step         L0-108; told once, without a promise and without a key
    a state            evt.agent.<agent id>.state        L0-113; as a step, at most ten a second
    a command          cmd.tool.<tool>                   L0-51; as above, again and again until the call is answered

A name is one token of a subject. Letters, digits, '_' and '-' stand for themselves, every other byte is
percent-encoded: agent `run_7f/critic` publishes on `evt.agent.run_7f%2Fcritic.task`, so that `evt.agent.*.task` hears
every agent, and nothing in a name can become a wildcard or a second token.

No JetStream: its acknowledgements can be lost by a crash, and nothing here needs them. An event is on the wire once the
server has answered a ping that was sent after it (`flushed`); a stream over `evt.>` that the operator makes removes
second copies by the header.
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
from heliograph.records import Event

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
_LOGGED_MAX = 1000  # in a millisecond; what comes before the last so many is forgotten
_PING_SECONDS = 10  # a server that vanished without a word is missed after two of these


class NatsDoorbell(Bell):
    """Rings all processes on one NATS server or cluster."""

    carries_names = True
    carries_commands = True

    def __init__(self, url: str, on_ring: Callable[[list[str]], None]):
        """`url`: one or more, divided by commas. Raises SetupError for one that no server can have."""
        super().__init__(on_ring)
        self._urls = [part.strip() for part in url.split(",")]
        self._client: Any = None
        self._at_work: set[asyncio.Task[None]] = set()
        self._logged_errors: deque[tuple[str, dict[str, Any]]] = deque(maxlen=_LOGGED_MAX)
        if not all(_is_url(part) for part in self._urls):
            raise SetupError("HELIOGRAPH_NATS_URL cannot be read; it looks like nats://user:password@host:4222",
                             code="invalid_url")  # fmt: skip

    @property
    def is_up(self) -> bool:
        return self._client is not None and self._client.is_connected

    async def publish(self, events: Sequence[Event]) -> None:
        # shielded: whoever is told to stop in the middle of it has the connection for what is left to publish
        await asyncio.shield(self._beside(self._publish(events), "doorbell publish"))

    async def _publish(self, events: Sequence[Event]) -> None:
        client, clock = self._connected(), asyncio.get_running_loop().time
        until = clock() + _TIMEOUT_SECONDS
        try:
            for event in events:
                if clock() > until:  # nats-py holds up whoever publishes while the server does not read
                    self._drain(client)
                    raise ConnectionError("NATS does not read what is published")
                body, key = msgspec.json.encode(event.body), event.key
                try:
                    await client.publish(safe_subject(event.subject), body, headers={"Nats-Msg-Id": event.message_id})
                except MaxPayloadError:  # it would hold up all that follow; it is in the ledger, for who looks there
                    log.error("%s has %d bytes, more than this NATS takes (max_payload): it is not told there", key, len(body))  # fmt: skip
        except NatsError as error:
            raise ConnectionError(f"NATS: {error}") from error
        try:
            await flushed(client)
        except (NatsError, TimeoutError) as error:
            self._drain(client)
            raise ConnectionError(f"NATS did not confirm: {error}") from error

    def _drain(self, client: Any) -> None:
        """Use it no more: the answer to a ping that nobody waits for any longer would end a client's reading."""
        if self._client is client:
            self._client = None
        self._beside(_closed(client), "doorbell leaves a connection")

    def _beside(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Do it, also when nobody waits for it any longer; `close` does."""
        task = asyncio.create_task(work, name=name)
        self._at_work.add(task)
        task.add_done_callback(self._is_done)
        return task

    def _is_done(self, task: asyncio.Task[None]) -> None:
        self._at_work.discard(task)
        if not task.cancelled():
            task.exception()  # it was told to whoever waited; who did not is not interested

    async def _connect(self) -> None:
        # a client of its own for each connection: Bell makes lost ones again, as it does on every wire
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
        await asyncio.gather(*self._at_work, return_exceptions=True)  # each has its time
        if self._client is not None:
            await _closed(self._client)
        await asyncio.gather(*self._at_work, return_exceptions=True)

    def publish_event(self, subject: str, body: dict[str, Any]) -> None:
        self._logged_errors.append((subject, body))
        self._wake.set()

    async def _send(self, keys: list[str], agents: list[str]) -> None:
        told, self._logged_errors = self._logged_errors, deque(maxlen=_LOGGED_MAX)
        client = self._connected()
        # a hint for those who watch; a worker looks for all work of its pool, whoever is named (S6)
        hint = msgspec.json.encode({"agent_id": agents[0] if agents else None, "metadata": {"agent_ids": agents}})
        try:
            for key in keys:
                await client.publish(subject_of(key), hint if key.startswith("work:") else b"")
            for subject, body in told:
                await client.publish(safe_subject(subject), msgspec.json.encode(body))
        except (NatsError, TimeoutError) as error:
            raise ConnectionError(f"NATS: {error}") from error

    async def _on_message(self, message: Any) -> None:
        key = key_of(message.subject)
        if key is not None and key != "*":  # which is this bell's own word
            self._on_ring([key])

    def _connected(self) -> Any:
        if not self.is_up:
            raise ConnectionError("the doorbell's connection to NATS is gone")
        return self._client

    def _where(self) -> str:
        return ", ".join(urlsplit(url).hostname or "?" for url in self._urls)  # never the password


async def flushed(client: Any) -> None:
    """Until the server has read all that was published and subscribed before. Raises NatsError and TimeoutError.

    Twice, since nats-py writes a ping at once and what was published a moment later, from a task of its own: the first
    answer says only that this task has had its turn, and the second one that the server has read what it wrote. By `rtt`,
    since `flush` returns without an answer where the client has stopped reading.
    """
    for _ in range(2):
        await client.rtt(_TIMEOUT_SECONDS)


async def _closed(client: Any) -> None:
    """Close it, or give that up: a server that does not read would have us wait for ever."""
    with suppress(TimeoutError, NatsError, OSError):
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            await client.close()


def subject_of(key: str) -> str:
    """The subject that a key of the bell rings on."""
    kind, _, name = key.partition(":")
    return _WAKEUP.format(_token(name)) if kind == "work" else _BELL.format(_token(key))


def key_of(subject: str) -> str | None:
    """The key that rang, or None for a subject that no bell has. What nobody listens for is heard by nobody."""
    match subject.split("."):
        case ["cmd", "agent", target, "wakeup"]:
            return f"work:{unquote(target)}"
        case ["heliograph", "bell", name]:
            return unquote(name)
    return None


def safe_subject(subject: str) -> str:
    """A subject as the ledger writes it, valid on NATS: what stands between two dots becomes one token."""
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
