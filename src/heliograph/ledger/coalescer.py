"""Combine concurrent calls of one kernel function into one array call with one commit (docs/internals/kernel.md).

There is no timer. A call that finds a free lane takes it, and starts after all tasks that are ready have run, so that their calls
join it. If no lane is free, calls wait and start together when one becomes free. So no call waits only to collect others, and
commits become fewer per caller as load grows. Every caller continues only after the commit of its item.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from msgspec import Struct

from heliograph.errors import KernelRejected, StoreUnavailable
from heliograph.world.seam import World

Item = TypeVar("Item")
Answer = TypeVar("Answer")

LANES = 2  # PostgreSQL executes one batch while this process encodes the other
BATCH_MAX = 64


class _Waiter(Struct, Generic[Item, Answer], eq=False):
    item: Item
    answer: asyncio.Future[Answer]


class Coalescer(Generic[Item, Answer]):
    """Combines the calls of one kernel function. send: calls it with several items, and returns the results in their order.

    A result may be an error, which is raised to the caller of that item. If a call fails as a whole, the items are sent one by one,
    so that only the faulty one fails; an unreachable database fails all of them. A caller that is cancelled while it waits withdraws
    its item, unless the item is already being sent.
    """

    def __init__(
        self, world: World, name: str, send: Callable[[list[Item]], Awaitable[Sequence[Answer | KernelRejected]]]
    ):
        self._world = world
        self.name = name
        self._send = send
        self._free = LANES
        self._is_starting = False
        self._waiting: deque[_Waiter[Item, Answer]] = deque()

    async def call(self, item: Item) -> Answer:
        """Return the result for `item`. Raises the error that `send` raises or returns for it."""
        waiter: _Waiter[Item, Answer] = _Waiter(item, asyncio.get_running_loop().create_future())
        self._waiting.append(waiter)
        self._start()
        try:
            return await waiter.answer
        except asyncio.CancelledError:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            raise

    def is_joined_by_next(self, is_it: Callable[[Item], bool]) -> bool:
        """Whether this item still waits, and the next item will be sent in the same call."""
        waiting = len(self._waiting)
        found = next((n for n in range(waiting - 1, -1, -1) if is_it(self._waiting[n].item)), None)
        return found is not None and found // BATCH_MAX == waiting // BATCH_MAX

    def _start(self) -> None:
        """Start a call for the waiting items if a lane is free. Items that arrive before it starts join it."""
        if self._free and self._waiting and not self._is_starting:
            self._free -= 1
            self._is_starting = True
            self._world.spawn(f"ledger {self.name}", self._call_together())

    async def _call_together(self) -> None:
        self._is_starting = False
        batch = [self._waiting.popleft() for _ in range(min(BATCH_MAX, len(self._waiting)))]
        batch = [waiter for waiter in batch if not waiter.answer.cancelled()]  # cancelled, but not yet withdrawn
        self._start()
        try:
            if batch:
                await self._answer(batch)
        except (
            asyncio.CancelledError
        ):  # the runtime closes; not `finally`, because an abandoned coroutine must do nothing
            self._close(batch)
            raise
        self._free_lane()

    def _close(self, batch: list[_Waiter[Item, Answer]]) -> None:
        """Fail all waiting calls. A cancellation would be wrong, because their own tasks were not cancelled."""
        self._free += 1
        for waiter in (*batch, *self._waiting):
            if not waiter.answer.done():
                waiter.answer.set_exception(
                    StoreUnavailable(f"heliograph.{self.name} may not have been executed: its runtime was closed")
                )
        self._waiting.clear()

    def _free_lane(self) -> None:
        self._free += 1
        self._start()

    async def _answer(self, batch: list[_Waiter[Item, Answer]]) -> None:
        try:
            answers = await self._send([waiter.item for waiter in batch])
        except Exception as error:
            if len(batch) > 1 and not isinstance(error, StoreUnavailable):
                for waiter in batch:
                    await self._answer([waiter])
                return
            for waiter in batch:
                if not waiter.answer.done():
                    waiter.answer.set_exception(error)
            return
        for waiter, answer in zip(batch, answers, strict=True):
            if waiter.answer.done():
                continue
            if isinstance(answer, Exception):
                waiter.answer.set_exception(answer)
            else:
                waiter.answer.set_result(answer)
