"""A detached world with virtual time: for code that runs again without a recording of what it had read from the world."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import TypeVar

from heliograph.recording.detached_world import DetachedWorld
from heliograph.world.user_code import within

T = TypeVar("T")


class VirtualWorld(DetachedWorld):
    """See `heliograph.world.seam.World`. Its clock begins at `now`, and stands still while the code runs."""

    def __init__(self, now: datetime):
        super().__init__()
        self._began = now
        self._ids = 0

    def now(self) -> datetime:
        return self._began + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def new_id(self, kind: str) -> str:
        self._ids += 1
        return f"{kind}_{self._ids:032}"

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def within(self, seconds: float | None, work: Awaitable[T]) -> T:
        return await within(None, work)  # its clock says nothing about the time that the work takes

    async def run_sync(self, function: Callable[..., T], *args: object, ended: Callable[[], None] | None = None) -> T:
        try:
            return function(*args)
        finally:
            if ended is not None:
                ended()
