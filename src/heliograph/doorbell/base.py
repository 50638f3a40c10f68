"""What every bell does: send rings at once and gather those of the next millisecond, make lost connections again.

A bell is never needed, only fast: whoever misses a ring finds its work by the
sweep and the poll bound. So opening never fails, a ring while the connection is
away is dropped, and a connection that came back rings everything here once, for
what may have been missed.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from heliograph.records import Event

log = logging.getLogger("heliograph.doorbell")

_QUIET_SECONDS = 0.001  # after each sending: what is rung meanwhile goes together
_RECONNECT_SECONDS = 0.5
_LAST_SECONDS = 1.0  # for what is rung just before the bell closes
_AGENTS_MAX = 100  # named in one ring: a hint is short, or none


class Bell(ABC):
    """Rings the other processes on one wire; `world.real.Doorbell`.

    Keys here are the texts on the wire: tokens that reveal nothing (`bell_tokens.py`), or `work:<pool>` on a wire with access
    rights of its own.
    on_ring: called in the event loop with the keys that another process rang, or ['*'] for all that there are.
    An implementation gives the five hooks below, which raise OSError and nothing else when the wire is away.
    """

    carries_names = False  # the wire has access rights of its own: its listeners may read names, ids and events
    carries_commands = False  # to tools, with their arguments: as large as these may be, and to whoever subscribes

    def __init__(self, on_ring: Callable[[list[str]], None]):
        self._on_ring = on_ring
        self._due: set[str] = set()
        self._agents: set[str] = set()
        self._wake = asyncio.Event()
        self._sending = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        """Connect; a wire that is away is logged, and tried again for ever."""
        try:
            await self._connect()
        except OSError as error:
            log.warning("%s; trying again, and rings go another way meanwhile", error)
        self._tasks = [asyncio.create_task(self._send_loop(), name="doorbell send"),
                       asyncio.create_task(self._keep_loop(), name="doorbell keep")]  # fmt: skip

    async def close(self) -> None:
        """What was rung just now still leaves, as does what is on its way. A second call does nothing, nor does one
        without `open`."""
        tasks, self._tasks = self._tasks, []
        try:
            if tasks:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LAST_SECONDS):
                        await self._send_due()
        finally:
            for task in tasks:
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._disconnect()

    def ring(self, keys: Iterable[str], agents: Iterable[str] = ()) -> None:
        """Send at once, or with all that is rung within a millisecond of the last sending.

        Never before the commit that it tells of.

        agents: who has work now, as a hint for those who watch; a bell may leave them out, and none reads them (S6).
        """
        self._due.update(keys)
        self._agents.update(islice(agents, max(0, _AGENTS_MAX - len(self._agents))))
        self._wake.set()

    def publish_event(self, subject: str, body: dict[str, Any]) -> None:  # noqa: B027  most bells have nobody who watches
        """Put something on the wire for those who watch, soon and without a promise."""

    @property
    @abstractmethod
    def is_up(self) -> bool:
        """Whether a ring sent now would leave this process."""

    @abstractmethod
    async def publish(self, events: Sequence[Event]) -> None:
        """Put events on the wire, in their order. Raises OSError when some may not have got there: publish them again."""

    @abstractmethod
    async def _connect(self) -> None: ...

    @abstractmethod
    async def _disconnect(self) -> None: ...

    @abstractmethod
    async def _send(self, keys: list[str], agents: list[str]) -> None: ...

    async def _send_loop(self) -> None:
        while True:
            await self._wake.wait()
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
                log.info("%d rings were lost: %s", len(keys), error)

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
