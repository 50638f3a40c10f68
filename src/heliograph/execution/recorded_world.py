"""The world of a recorded part: it passes everything on, and records what comes back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from contextvars import copy_context
from datetime import datetime
from typing import Any, TypeVar

from heliograph.errors import TurnTimedOut
from heliograph.execution.tape import Tape, is_unrecorded, resume_recording
from heliograph.outbox_records import Event
from heliograph.world.seam import BellKey, Subscription, Task, Transaction, World

T = TypeVar("T")


class RecordedWorld:
    """See `heliograph.world.seam.World`. The reads of functions of steps are not recorded: only their results are."""

    __slots__ = ("_read", "_tape", "failpoint", "is_observed", "ring", "unrecorded")

    def __init__(self, world: World, tape: Tape):
        self.unrecorded = world
        self._tape = tape
        self._read = tape.read
        self.is_observed = world.is_observed  # the same for the whole part
        self.failpoint = world.failpoint
        self.ring = world.ring

    def now(self) -> datetime:
        now = self.unrecorded.now()
        if not is_unrecorded():
            self._read(now)
        return now

    def monotonic(self) -> float:
        seconds = self.unrecorded.monotonic()
        if not is_unrecorded():
            self._read(seconds)
        return seconds

    def new_id(self, kind: str) -> str:
        identifier = self.unrecorded.new_id(kind)
        if kind != "token" and not is_unrecorded():  # a token is a secret, and has no effect on the turn
            self._read(("id", kind, identifier))
        return identifier

    async def sleep(self, seconds: float) -> None:
        number = None if is_unrecorded() else self._tape.begin("sleep", seconds)
        await self.unrecorded.sleep(seconds)
        if number is not None:
            self._tape.answer(number, None)

    def spawn(self, name: str, work: Coroutine[Any, Any, None]) -> Task:
        context = copy_context()  # a step may spawn a task of its turn, whose reads are recorded
        context.run(resume_recording)
        return context.run(self.unrecorded.spawn, name, work)

    async def within(self, seconds: float | None, work: Awaitable[T]) -> T:
        if is_unrecorded():
            return await self.unrecorded.within(seconds, work)
        self._tape.withins += 1
        number = self._tape.withins
        try:
            return await self.unrecorded.within(seconds, work)
        except TurnTimedOut as error:
            if not hasattr(error, "_is_recorded"):  # an outer scope passes it on
                error._is_recorded = True  # type: ignore[attr-defined]
                self._read(("timeout", number))
            raise

    async def run_sync(self, function: Callable[..., T], *args: object, ended: Callable[[], None] | None = None) -> T:
        if is_unrecorded():
            return await self.unrecorded.run_sync(function, *args, ended=ended)
        number = self._tape.begin("thread")
        try:
            return await self.unrecorded.run_sync(function, *args, ended=ended)
        finally:
            self._tape.answer(number, None)

    async def call(self, function: str, *args: object) -> Any:
        return await self.unrecorded.call(function, *args)

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        return self.unrecorded.transaction()

    def subscribe(self, keys: Iterable[BellKey]) -> Subscription:
        return self.unrecorded.subscribe(keys)

    def publish_event(self, subject: str, body: dict[str, Any]) -> None:
        self.unrecorded.publish_event(subject, body)

    async def publish(self, project: str, events: Sequence[Event]) -> None:
        await self.unrecorded.publish(project, events)
