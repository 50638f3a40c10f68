"""A value that several clients of a worker's listener read at the same time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from heliograph.world.cancellation import cancel

T = TypeVar("T")


class Shared(Generic[T]):
    """A value that is read once for all callers, and counts for some seconds. A caller that is canceled cancels no reading."""

    def __init__(self, read: Callable[[], Awaitable[T]], seconds: float):
        self._read = read
        self._seconds = seconds
        self._reading: asyncio.Task[T] | None = None
        self._until = 0.0

    async def get(self) -> T:
        """Return the value. Raises the errors of its reading, which the next caller repeats."""
        if self._reading is None or (self._reading.done() and time.monotonic() >= self._until):
            self._reading = asyncio.create_task(self._read_once())
        return await asyncio.shield(self._reading)

    async def _read_once(self) -> T:
        self._until = 0.0
        value = await self._read()
        self._until = time.monotonic() + self._seconds
        return value

    async def close(self) -> None:
        """Cancel a reading."""
        if self._reading is not None:
            await cancel((self._reading,))
