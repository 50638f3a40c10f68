"""Calls that are made at the same time become one array call: one commit for many (docs/internals/kernel.md).

There is no timer. A call that finds a lane free takes it, and leaves when the tasks that are ready now have had their
turn: what they ask comes along, as the turns do that were claimed together. A call that finds no lane free waits, and
all that waited leave together when one comes free. So nobody is delayed for company, and the more callers there are,
the fewer commits each costs. Durability is what it was: every caller goes on after the commit that holds its item.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from heliograph.errors import KernelRejected, StoreUnavailable
from heliograph.world.seam import World

Item = TypeVar("Item")
Answer = TypeVar("Answer")

LANES = 2  # one is in PostgreSQL while the other is encoded here
BATCH_MAX = 64


@dataclass(eq=False, slots=True)
class _Waiter(Generic[Item, Answer]):
    item: Item
    answer: asyncio.Future[Answer]


class Coalescer(Generic[Item, Answer]):
    """One kernel function's calls. `send` makes one call of the items given, and answers in their order.

    An answer may be an error: the call was made, and this item's caller gets the error.
    An item that makes a call fail is found by sending the items one by one: it fails alone. Only an unreachable store
    fails them all, as it would have failed each. What belongs to a call is sent even if its caller was cancelled, as
    with any call that is under way; a caller that is cancelled while it waits takes its item back.
    """

    def __init__(
        self, world: World, name: str, send: Callable[[list[Item]], Awaitable[Sequence[Answer | KernelRejected]]]
    ):
        self._world = world
        self._name = name
        self._send = send
        self._free = LANES
        self._is_boarding = False
        self._waiting: deque[_Waiter[Item, Answer]] = deque()

    async def call(self, item: Item) -> Answer:
        """The answer to `item`. Raises what `send` raises for it."""
        waiter = _Waiter[Item, Answer](item, asyncio.get_running_loop().create_future())
        self._waiting.append(waiter)
        self._depart()
        try:
            return await waiter.answer
        except asyncio.CancelledError:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            raise

    def _depart(self) -> None:
        """Take a free lane for those who wait. One at a time is boarded: who comes meanwhile comes along."""
        if self._free and self._waiting and not self._is_boarding:
            self._free -= 1
            self._is_boarding = True
            self._world.spawn(f"ledger {self._name}", self._call_together())

    async def _call_together(self) -> None:
        self._is_boarding = False
        batch = [self._waiting.popleft() for _ in range(min(BATCH_MAX, len(self._waiting)))]
        batch = [waiter for waiter in batch if not waiter.answer.cancelled()]  # who did not come to take it back
        self._depart()
        try:
            if batch:
                await self._answer(batch)
        except asyncio.CancelledError:  # the runtime closes; no `finally`: a coroutine that is dropped must do nothing
            self._close(batch)
            raise
        self._depart_last()

    def _close(self, batch: list[_Waiter[Item, Answer]]) -> None:
        """Tell all who wait. Not as a cancellation: who asks from a task of his own was not cancelled."""
        self._free += 1
        for waiter in (*batch, *self._waiting):
            if not waiter.answer.done():
                waiter.answer.set_exception(
                    StoreUnavailable(f"heliograph.{self._name} got no answer: its runtime was closed")
                )
        self._waiting.clear()

    def _depart_last(self) -> None:
        self._free += 1
        self._depart()

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
