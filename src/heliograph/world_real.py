"""The real world: asyncio, PostgreSQL and a doorbell behind the one seam."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

from heliograph.errors import StoreUnavailable, TurnTimedOut
from heliograph.ids import make_id
from heliograph.ledger.pool import Database
from heliograph.world import Task

log = logging.getLogger("heliograph.world")
T = TypeVar("T")


class Doorbell(Protocol):
    """Rings other processes; a ring may be lost."""

    def ring(self, keys: Iterable[str]) -> None: ...

    async def publish(self, subject: str, key: str, body: dict[str, Any]) -> None: ...


class _Ear:
    def __init__(self, keys: tuple[str, ...], ears: dict[str, set[_Ear]]):
        self._keys = keys
        self._ears = ears
        self.bell = asyncio.Event()
        for key in keys:
            ears.setdefault(key, set()).add(self)

    def clear(self) -> None:
        self.bell.clear()

    async def wait(self, timeout_seconds: float) -> bool:
        try:
            async with asyncio.timeout(timeout_seconds):
                await self.bell.wait()
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        for key in self._keys:
            self._ears[key].discard(self)
            if not self._ears[key]:
                del self._ears[key]


class RealWorld:
    """See `heliograph.world.World`. Set `doorbell` before the first ring is to reach other processes."""

    def __init__(self, database: Database, threads: int = 16):
        self._database = database
        self._loop = asyncio.get_running_loop()
        self._thread = threading.current_thread()
        self._ears: dict[str, set[_Ear]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="heliograph agent")
        self.doorbell: Doorbell | None = None
        self.extra_wire: Doorbell | None = None

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def new_id(self, kind: str) -> str:
        return make_id(kind, self.now(), os.urandom(10))

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def spawn(self, name: str, work: Coroutine[Any, Any, None]) -> Task:
        if threading.current_thread() is not self._thread:  # an agent's plain function speaks from its own thread
            return asyncio.run_coroutine_threadsafe(work, self._loop)
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)  # asyncio itself keeps only a weak reference
        task.add_done_callback(self._reap)
        return task

    async def within(self, seconds: float | None, work: Awaitable[T]) -> T:
        scope = asyncio.timeout(seconds)
        try:
            async with scope:
                return await work
        except TimeoutError:
            if scope.expired():  # ours; one that the work itself raised stays a TimeoutError
                raise TurnTimedOut(f"not done within {seconds} s") from None
            raise

    async def run_sync(self, function: Callable[..., T], *args: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *args)

    async def call(self, function: str, *args: object) -> Any:
        return await self._database.call(function, *args)

    def hear(self, keys: Iterable[str]) -> _Ear:
        return _Ear(tuple(keys), self._ears)

    def ring(self, keys: Iterable[str]) -> None:
        keys = list(keys)
        self.ring_here(keys)
        abroad = [key for key in keys if not key.startswith("slot:")]
        if self.doorbell is not None and abroad:
            self.doorbell.ring(abroad)

    def ring_here(self, keys: list[str]) -> None:
        """Ring this process only; '*' rings everything."""
        for key in list(self._ears) if keys == ["*"] else keys:
            for ear in self._ears.get(key, ()):
                ear.bell.set()

    async def publish(self, subject: str, key: str, body: dict[str, Any]) -> None:
        try:
            for wire in (self.doorbell, self.extra_wire):
                if wire is not None:
                    await wire.publish(subject, key, body)
        except OSError as error:
            raise StoreUnavailable(f"event {key} is not published yet: {error}") from error

    async def point(self, name: str) -> None:
        """Nothing happens at a named point in the real world."""

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _reap(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("task %s ended by %s: %s", task.get_name(), type(error).__name__, error, exc_info=error)
