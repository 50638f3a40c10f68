"""The limit of parallel calls of a tool.

An abandoned call of a plain function continues in its thread, and counts until the thread has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

from heliograph.world.seam import World

T = TypeVar("T")


class Slot:
    """The slot of one call. Without a limit, nothing waits for its threads."""

    def __init__(self, world: World, *, has_limit: bool):
        self._world = world
        self._has_limit = has_limit
        self._threads: list[asyncio.Future[None]] = []

    async def run_sync(self, function: Callable[..., T], *args: object) -> T:
        """See `World.run_sync`."""
        if not self._has_limit:
            return await self._world.run_sync(function, *args)
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._threads.append(ended)
        return await self._world.run_sync(function, *args, ended=partial(ended.set_result, None))

    async def ended(self) -> None:
        """Return when all threads of this call have ended."""
        if not self.is_free:
            await asyncio.wait(self._threads)

    @property
    def is_free(self) -> bool:
        return all(thread.done() for thread in self._threads)


@asynccontextmanager
async def slot_of(slots: asyncio.Semaphore | None, world: World) -> AsyncIterator[Slot]:
    """Wait for a free slot. After the block, the slot becomes free when its threads have ended."""
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
            world.spawn("an abandoned tool call", _release(slots, slot))


async def _release(slots: asyncio.Semaphore, slot: Slot) -> None:
    try:
        await slot.ended()
    finally:
        slots.release()
