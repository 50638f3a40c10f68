"""The world and the ledger of a recorded part: they pass everything on, and record what comes back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from contextvars import copy_context
from datetime import datetime
from typing import Any, TypeVar

from heliograph.errors import TurnTimedOut
from heliograph.execution.tape import Tape, is_unrecorded, resume_recording, without_intents, without_targets
from heliograph.ledger.client import Ledger
from heliograph.records import BeginResult, Card, Event, WriteResult
from heliograph.world.seam import BellKey, Subscription, Task, Transaction, World

T = TypeVar("T")
R = TypeVar("R", BeginResult, WriteResult)

_COMMITTED = frozenset(("ok", "suspended", "resolved"))  # the outcomes of calls whose signals are in the log


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
            self._read(("now", now))
        return now

    def monotonic(self) -> float:
        seconds = self.unrecorded.monotonic()
        if not is_unrecorded():
            self._read(("monotonic", seconds))
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


class RecordedLedger(Ledger):
    """The ledger of a recorded turn. Each commit of signals has what the turn has read since the one before it."""

    def __init__(self, ledger: Ledger, tape: Tape):
        self._inner = ledger
        self._tape = tape
        self.world = ledger.world
        self.project = ledger.project

    def append(self, item: dict[str, Any]) -> Coroutine[Any, Any, WriteResult]:
        return self._recorded("append", item, self._inner.append)

    async def begin_call(self, item: dict[str, Any]) -> BeginResult:
        return await self._recorded("begin_call", item, self._inner.begin_call)

    async def record_call(self, item: dict[str, Any]) -> WriteResult:
        async def write(given: dict[str, Any]) -> WriteResult:
            return await self._inner.record_call({**given, "intents": item["intents"]} if "intents" in item else given)

        return await self._recorded("record_call", without_intents(item), write)

    async def begun(self, item: dict[str, Any], answer: BeginResult) -> BeginResult:
        """Record the call of begin_call that the intent has replaced."""
        self._tape.answer(self._tape.called("begin_call", item), answer)
        return answer

    async def record_call_in(self, transaction: Transaction, item: dict[str, Any]) -> WriteResult:
        async def write(item: dict[str, Any]) -> WriteResult:
            return await self._inner.record_call_in(transaction, item)

        return await self._recorded("record_call", item, write, is_certain=False)

    def suspend(self, item: dict[str, Any]) -> Coroutine[Any, Any, WriteResult]:
        return self._recorded("suspend", item, self._inner.suspend)

    async def defer(self, item: dict[str, Any]) -> WriteResult:
        return await self._recorded("defer", item, self._inner.defer)

    def finish(self, item: dict[str, Any]) -> Coroutine[Any, Any, WriteResult]:
        return self._recorded("finish", item, self._inner.finish)

    async def react(self, item: dict[str, Any]) -> dict[str, Any]:
        number, recording = self._tape.commit("react", item)
        answer = await self._inner.react({**item, "recording": recording})
        self._tape.answer(number, {"outcome": answer["outcome"]})
        return answer

    def pages_of_box(self, box_id: str) -> AsyncIterator[list[Card]]:
        return self._pages(box_id)

    async def _pages(self, box_id: str) -> AsyncIterator[list[Card]]:
        number = self._tape.begin("call", "read_box", {"box_id": box_id}, {})
        try:
            pages = [page async for page in self._inner.pages_of_box(box_id)]
        except Exception as error:
            self._tape.raised(number, error)
            raise
        self._tape.answer(number, pages)
        for page in pages:
            yield page

    async def remember(self, items: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        return await self._inner.remember(items)  # in a step, whose result is recorded

    async def recall(self, query: str, agent: str | None, limit: int) -> list[dict[str, Any]]:
        return await self._inner.recall(query, agent, limit)

    async def _recorded(
        self, function: str, item: Mapping[str, Any], write: Callable[[dict[str, Any]], Awaitable[R]], *, is_certain: bool = True
    ) -> R:  # fmt: skip
        """Make a kernel call; one with signals keeps what was read before it. is_certain: an answer proves its commit."""
        tape = self._tape
        if has_signals := bool(item.get("signals")):
            number, recording = tape.commit(function, item)
            given = {**item, "recording": recording}
        else:
            number, given = tape.called(function, item), dict(item)
        try:
            result = await write(given)
        except BaseException as error:
            if isinstance(error, Exception):
                tape.raised(number, error)
            if has_signals:  # also of a call that was cancelled nobody knows whether it was committed
                tape.lost(item.get("signals_emitted"))
            raise
        if has_signals and is_certain and result.outcome in _COMMITTED:
            tape.kept(number, item.get("signals_emitted"))
        tape.read(("answer", number, without_targets(result)))
        return result
