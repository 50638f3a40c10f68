"""How many calls of a tool there are at a time. A plain function that is given up goes on in its thread, and counts until
that has ended."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from heliograph.world import World

T = TypeVar("T")


class Slot:
    """The place that one call has among those of its tool; where there is no limit, threads are not waited for."""

    def __init__(self, world: World, *, has_limit: bool):
        self._world = world
        self._has_limit = has_limit
        self._threads: list[_Thread] = []

    async def run_sync(self, function: Callable[..., T], *args: object) -> T:
        """See `World.run_sync`."""
        if not self._has_limit:
            return await self._world.run_sync(function, *args)
        thread = _Thread(function)
        self._threads.append(thread)
        try:
            return await self._world.run_sync(thread.run, *args)
        finally:
            thread.give_up()

    async def ended(self) -> None:
        """Return when no thread of this call is at work."""
        for thread in self._threads:
            await thread.ended.wait()

    @property
    def is_free(self) -> bool:
        return all(thread.ended.is_set() for thread in self._threads)


@asynccontextmanager
async def slot_of(slots: asyncio.Semaphore | None, world: World) -> AsyncIterator[Slot]:
    """A slot, as soon as one is free. Left, it is free again when its threads have ended."""
    slot = Slot(world, has_limit=slots is not None)
    if slots is None:
        yield slot
        return
    await slots.acquire()
    try:
        yield slot
    finally:
        if slot.is_free:
            slots.release()
        else:
            world.spawn("a tool that was given up", _release(slots, slot))


async def _release(slots: asyncio.Semaphore, slot: Slot) -> None:
    try:
        await slot.ended()
    finally:
        slots.release()


class _Thread:
    """A function that runs in a thread, or was given up before it began."""

    def __init__(self, function: Callable[..., Any]):
        self.ended = asyncio.Event()
        self._function = function
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._has_begun = self._is_given_up = False

    def run(self, *args: object) -> Any:
        with self._lock:
            if self._is_given_up:
                return None
            self._has_begun = True
        try:
            return self._function(*args)
        finally:
            self._tell()

    def give_up(self) -> None:
        """Nobody waits for it any more; what has not begun does not begin."""
        with self._lock:
            self._is_given_up = True
            if not self._has_begun:
                self.ended.set()

    def _tell(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.ended.set)
