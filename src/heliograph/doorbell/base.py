"""The base class of all doorbells: send a ring at once, batch the rings of the next millisecond, and reconnect.

Bells only save time: without a ring, polls and sweeps find the work. So opening never fails, rings are dropped without a connection,
and a new connection rings every listener of this process once, for rings that were missed.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from heliograph.error_text import counted
from heliograph.outbox_records import Event
from heliograph.world.cancellation import cancel

log = logging.getLogger("heliograph.doorbell")

_QUIET_SECONDS = 0.001  # after each batch: the rings of this time form the next one
_RECONNECT_SECONDS = 0.5
_LAST_SECONDS = 1.0  # for the rings that are pending when the bell closes
_AGENTS_MAX = 100  # agents named in one ring, as a hint


class Bell(ABC):
    """Rings other processes over one wire, a message system; implements `world.bells.Doorbell`.

    Keys are the texts on the wire: tokens that reveal nothing (`bell_tokens.py`), or `work:<pool>` on a wire with access rights.
    on_ring: called in the event loop with the keys that another process rang, or ['*'] for all keys.
    Subclasses implement the abstract methods, which raise only OSError without a connection.
    """

    carries_names = False  # True for a wire with access rights: its listeners may read names, ids and events
    carries_commands = False  # True for a wire that delivers commands, with their arguments, to tools
    has_observers = False  # True for a wire to which observers of events may listen

    def __init__(self, on_ring: Callable[[list[str]], None]):
        self._on_ring = on_ring
        self._due: set[str] = set()
        self._agents: set[str] = set()
        self._wake = asyncio.Event()
        self._sending = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        """Connect. If that fails, log a warning and retry until `close`."""
        try:
            await self._connect()
        except OSError as error:
            log.warning("%s; retrying, and rings use another wire meanwhile", error)
        self._tasks = [asyncio.create_task(self._send_loop(), name="doorbell send"),
                       asyncio.create_task(self._keep_loop(), name="doorbell keep")]  # fmt: skip

    async def close(self) -> None:
        """Send the pending rings, then disconnect. It does nothing for a bell that is not open."""
        tasks, self._tasks = self._tasks, []
        try:
            if tasks:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LAST_SECONDS):
                        await self._send_due()
        finally:
            await cancel(tasks)
        await self._disconnect()

    def ring(self, keys: Iterable[str], agents: Iterable[str] = ()) -> None:
        """Send rings: at once, or with the next batch within a millisecond. Call it after the commit that it announces.

        agents: ids of agents with work, a hint for observers. A bell may omit them, and no worker reads them.
        """
        self._due.update(keys)
        self._agents.update(islice(agents, max(0, _AGENTS_MAX - len(self._agents))))
        self._wake.set()

    def publish_event(self, subject: str, body: dict[str, Any]) -> None:  # noqa: B027  most bells have no observers
        """Send an event to observers of the wire, without a guarantee."""

    @property
    @abstractmethod
    def is_up(self) -> bool:
        """Whether the bell is connected."""

    @abstractmethod
    async def publish(self, events: Sequence[Event]) -> None:
        """Publish events in order. Raises OSError if some may be lost; the caller then publishes all of them again."""

    @abstractmethod
    async def _connect(self) -> None: ...

    @abstractmethod
    async def _disconnect(self) -> None: ...

    @abstractmethod
    async def _send(self, keys: list[str], agents: list[str]) -> None: ...

    async def _send_loop(self) -> None:
        while True:
            await self._wake.wait()
            await asyncio.sleep(0)  # rings of the tasks that the same commit wakes are in the same batch
            await self._send_due()
            await asyncio.sleep(_QUIET_SECONDS)

    async def _send_due(self) -> None:
        async with self._sending:
            if not self._wake.is_set():
                return
            self._wake.clear()
            keys, self._due = sorted(self._due), set()
            agents, self._agents = sorted(self._agents), set()
            try:
                await self._send(keys, agents)
            except OSError as error:
                log.info("lost %s: %s", counted(len(keys), "ring") if keys else "events for observers", error)

    async def _keep_loop(self) -> None:
        while True:
            await asyncio.sleep(_RECONNECT_SECONDS)
            if self.is_up:
                continue
            try:
                await self._connect()
            except OSError as error:
                log.info("%s", error)
                continue
            log.info("the doorbell is connected again")
            self._on_ring(["*"])
