"""Deliver events to the handlers of users, so that no handler delays a turn.

Each handler has a queue and one call at a time. A handler that raises or takes too long loses that event. A full queue drops
new events. Lost events are counted, and logged at the first, the tenth, the hundredth and so on.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Any

from heliograph.definitions.phase_handlers import PhaseHandler
from heliograph.error_text import format_exception
from heliograph.errors import TurnTimedOut
from heliograph.world.seam import World

log = logging.getLogger("heliograph.execution")

QUEUE_MAX = 1000
HANDLER_SECONDS = 5.0
CLOSE_SECONDS = 2.0


class HandlerQueues:
    """The queues of one worker. handler_seconds: the timeout of one call. close_seconds: the time for the rest at the end."""

    def __init__(self, handler_seconds: float = HANDLER_SECONDS, close_seconds: float = CLOSE_SECONDS):
        self.handler_seconds = handler_seconds
        self.close_seconds = close_seconds
        self._queues: dict[PhaseHandler, _Queue] = {}

    @property
    def lost(self) -> int:
        """The number of lost events."""
        return sum(queue.lost for queue in self._queues.values())

    def put(self, world: World, handler: PhaseHandler, values: Mapping[str, Any]) -> None:
        """Queue one event for a handler; return at once."""
        if (queue := self._queues.get(handler)) is None:
            queue = self._queues[handler] = _Queue(self, world, handler)
        queue.put({name: values[name] for name in handler.arguments})

    async def close(self, world: World) -> None:
        """Wait a short time for the queued events, and count the others as lost."""
        delivered = [queue.delivered for queue in self._queues.values() if not queue.delivered.done()]
        if not delivered:
            return
        try:
            await world.within(self.close_seconds, asyncio.wait(delivered))
        except TurnTimedOut:
            for queue in self._queues.values():
                queue.close()


class _Queue:
    """The events of one handler, which a task delivers while there are any. delivered: done while there are none."""

    def __init__(self, queues: HandlerQueues, world: World, handler: PhaseHandler):
        self.handler = handler
        self._queues = queues
        self.lost = 0
        self.delivered = _done()
        self._world = world
        self._events: deque[dict[str, Any]] = deque()
        self._ended = _done()  # the last call of a plain function, which may outlive its timeout

    def put(self, event: dict[str, Any]) -> None:
        if len(self._events) >= QUEUE_MAX:
            self._lose(1, f"its queue has {QUEUE_MAX} events already")
            return
        self._events.append(event)
        if self.delivered.done():
            self.delivered = asyncio.get_running_loop().create_future()
            self._world.spawn(f"handler {self.handler.name}", self._deliver())

    def close(self) -> None:
        if not self.delivered.done():
            count = len(self._events) + 1
            self._events.clear()
            self._lose(count, "the worker has ended")

    async def _deliver(self) -> None:
        try:
            while self._events:
                await self._call(self._events.popleft())
        finally:
            self.delivered.set_result(None)

    async def _call(self, event: dict[str, Any]) -> None:
        seconds = self._queues.handler_seconds
        try:
            if not self._ended.done():
                await asyncio.wait([self._ended])
            await self._world.within(seconds, self._result(event))
        except TurnTimedOut:
            self._lose(1, f"it took longer than {seconds:g} s")
        except (Exception, BaseExceptionGroup, SystemExit, KeyboardInterrupt) as error:
            self._lose(1, f"it raised {format_exception(error)}")

    async def _result(self, event: dict[str, Any]) -> None:
        function = self.handler.function
        if inspect.iscoroutinefunction(function):
            await function(**event)
            return
        self._ended = asyncio.get_running_loop().create_future()
        result = await self._world.run_sync(lambda: function(**event), ended=partial(self._ended.set_result, None))
        if inspect.isawaitable(result):
            await result

    def _lose(self, count: int, reason: str) -> None:
        before, self.lost = self.lost, self.lost + count
        if len(str(before)) < len(str(self.lost)) or before == 0:
            log.warning(
                "the handler %s of %s lost %d events so far: %s",
                self.handler.name,
                self.handler.event,
                self.lost,
                reason,
            )


def _done() -> asyncio.Future[None]:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    future.set_result(None)
    return future
