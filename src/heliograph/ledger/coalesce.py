"""Calls that wait at the same time become one array call: one commit for many (kernel.md section 6).

There is no timer. A call that finds a lane free is sent at once, alone and in its
caller; one that finds none waits, and all that waited leave together when a lane
comes free. So nobody is delayed for company, and the more callers there are, the
fewer commits each costs. Durability is what it was: every caller goes on after
the commit that holds its item.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from heliograph.errors import StoreUnavailable
from heliograph.world import World

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

    An item that makes a call fail is found by sending the items one by one: it fails alone. Only an unreachable store
    fails them all, as it would have failed each. What belongs to a call is sent even if its caller was cancelled, as
    with any call that is under way; a caller that is cancelled while it waits takes its item back.
    """

    def __init__(self, world: World, name: str, send: Callable[[list[Item]], Awaitable[list[Answer]]]):
        self._world = world
        self._name = name
        self._send = send
        self._free = LANES
        self._waiting: deque[_Waiter[Item, Answer]] = deque()

    async def call(self, item: Item) -> Answer:
        """The answer to `item`. Raises what `send` raises for it."""
        if self._free and not self._waiting:
            return await self._call_alone(item)
        waiter = _Waiter[Item, Answer](item, asyncio.get_running_loop().create_future())
        self._waiting.append(waiter)
        try:
            return await waiter.answer
        except asyncio.CancelledError:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            raise

    async def _call_alone(self, item: Item) -> Answer:
        self._free -= 1
        try:
            [answer] = await self._send([item])
        except (Exception, asyncio.CancelledError):  # and no `finally`: a coroutine that is dropped must do nothing
            self._leave()
            raise
        self._leave()
        return answer

    def _leave(self) -> None:
        """A lane is free: whoever waits goes."""
        self._free += 1
        while self._free and self._waiting:
            self._free -= 1
            batch = [self._waiting.popleft() for _ in range(min(BATCH_MAX, len(self._waiting)))]
            self._world.spawn(f"ledger {self._name}", self._call_together(batch))

    async def _call_together(self, batch: list[_Waiter[Item, Answer]]) -> None:
        try:
            await self._answer(batch)
        except asyncio.CancelledError:  # the runtime closes
            for waiter in batch:
                waiter.answer.cancel()
            self._leave()
            raise
        self._leave()

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
            if not waiter.answer.done():
                waiter.answer.set_result(answer)
