"""The real world: asyncio, PostgreSQL and a doorbell behind the one seam."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import logging
import os
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from functools import partial
from typing import Any, Protocol, TypeVar

from heliograph.errors import StoreUnavailable, TurnTimedOut, told
from heliograph.ids import make_id
from heliograph.ledger.pool import Database
from heliograph.ledger.transactions import Transactions
from heliograph.records import Event
from heliograph.turn.interruptions import Interruption
from heliograph.world import Task, Transaction

log = logging.getLogger("heliograph.world")
T = TypeVar("T")


class Doorbell(Protocol):
    """A wire to other processes; a ring may be lost, an event may come twice. `heliograph.doorbell.bell.Bell` is it."""

    @property
    def is_up(self) -> bool: ...

    @property
    def carries_commands(self) -> bool: ...

    def ring(self, keys: Iterable[str], agents: Iterable[str] = ()) -> None: ...

    def tell(self, subject: str, body: dict[str, Any]) -> None: ...

    async def publish(self, events: Sequence[Event]) -> None: ...


def _settle(future: concurrent.futures.Future[T], function: Callable[..., T], *args: object) -> None:
    if not future.set_running_or_notify_cancel():  # cancelled before it began; from now on it cannot be
        return
    try:
        result = function(*args)
    except (StopIteration, GeneratorExit) as error:  # no future can carry one to whoever waits for it
        future.set_exception(RuntimeError(f"{type(error).__name__} left the function: {error}"))
    except BaseException as error:  # it belongs to whoever waits
        future.set_exception(error)
    else:
        future.set_result(result)


async def within(seconds: float | None, work: Awaitable[T]) -> T:
    """`World.within`, on whatever event loop runs it: real worlds and simulated ones mean the same by it."""
    scope, mine = asyncio.timeout(seconds), asyncio.current_task()
    try:
        async with scope:
            return await work
    except GeneratorExit:
        if _running() is mine:  # nobody closes us: a coroutine that runs cannot be closed
            raise RuntimeError("GeneratorExit left the function") from None
        raise
    except asyncio.CancelledError:
        if mine is not None and not mine.cancelling():  # nobody cancelled us: the work let one of its own escape
            raise RuntimeError("it was cancelled from within") from None
        raise
    except TimeoutError:
        if scope.expired():  # ours; one that the work itself raised stays a TimeoutError
            raise TurnTimedOut(f"it took longer than {seconds:g} s") from None
        raise
    except (Exception, BaseExceptionGroup, SystemExit, KeyboardInterrupt, Interruption):
        raise
    except BaseException as error:  # a library's own, that no handler of the runtime knows
        raise RuntimeError(f"{told(error)} left the function") from error


def _running() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no loop runs
        return None


class _Ear:
    def __init__(self, keys: tuple[str, ...], ears: dict[str, set[_Ear]]):
        self._keys = keys
        self._ears = ears
        self.bell = asyncio.Event()
        for key in keys:
            ears.setdefault(key, set()).add(self)

    def clear(self) -> None:
        self.bell.clear()

    async def wait(self, timeout_seconds: float) -> bool:
        try:
            async with asyncio.timeout(timeout_seconds):
                await self.bell.wait()
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        for key in self._keys:
            self._ears[key].discard(self)
            if not self._ears[key]:
                del self._ears[key]


class RealWorld:
    """See `heliograph.world.World`. `wires` reach other processes, the preferred one first; none need be up."""

    def __init__(self, database: Database):
        self._database = database
        self._loop = asyncio.get_running_loop()
        self._thread = threading.current_thread()
        self._ears: dict[str, set[_Ear]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.wires: list[Doorbell] = []
        self.transactions = Transactions(database)

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def new_id(self, kind: str) -> str:
        return make_id(kind, self.now(), os.urandom(10))

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def spawn(self, name: str, work: Coroutine[Any, Any, None]) -> Task:
        if threading.current_thread() is not self._thread:  # an agent's plain function speaks from its own thread
            return asyncio.run_coroutine_threadsafe(work, self._loop)
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)  # asyncio itself keeps only a weak reference
        task.add_done_callback(self._reap)
        return task

    async def within(self, seconds: float | None, work: Awaitable[T]) -> T:
        return await within(seconds, work)

    async def run_sync(self, function: Callable[..., T], *args: object, ended: Callable[[], None] | None = None) -> T:
        """In a thread of its own: a pool would let functions that outlive their timeout starve all others, and its
        threads would keep the process from ending."""
        future: concurrent.futures.Future[T] = concurrent.futures.Future()
        context, work = contextvars.copy_context(), partial(_settle, future, function, *args)

        def run() -> None:
            try:
                context.run(work)
            finally:
                if ended is not None and not self._loop.is_closed():
                    self._loop.call_soon_threadsafe(ended)

        try:
            threading.Thread(target=run, name="heliograph agent", daemon=True).start()
        except RuntimeError:  # there are too many: nothing has begun, and nothing else says that it has ended
            if ended is not None:
                ended()
            raise
        return await asyncio.wrap_future(future)

    async def call(self, function: str, *args: object) -> Any:
        return await self._database.call(function, *args)

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        return self.transactions.open()

    def hear(self, keys: Iterable[str]) -> _Ear:
        return _Ear(tuple(keys), self._ears)

    def ring(self, keys: Iterable[str], agents: Iterable[str] = ()) -> None:
        keys = list(keys)
        self.ring_here(keys)
        abroad = [key for key in keys if not key.startswith("slot:")]
        wire = next((wire for wire in self.wires if wire.is_up), None)  # every process listens on each of them
        if wire is not None and abroad:
            wire.ring(abroad, agents)

    def tell(self, subject: str, body: dict[str, Any]) -> None:
        for wire in self.wires:
            if wire.is_up:
                wire.tell(subject, body)

    def ring_here(self, keys: list[str]) -> None:
        """Ring this process only; '*' rings everything."""
        for key in list(self._ears) if keys == ["*"] else keys:
            for ear in self._ears.get(key, ()):
                ear.bell.set()

    async def publish(self, events: Sequence[Event]) -> None:
        try:
            for wire in self.wires:  # on all of them, or it stays in the outbox
                carried = [e for e in events if wire.carries_commands or not e.subject.startswith("cmd.")]
                if carried:
                    await wire.publish(carried)
        except OSError as error:
            raise StoreUnavailable(f"{len(events)} events are not published yet: {error}") from error

    async def point(self, name: str) -> None:
        """Nothing happens at a named point in the real world."""

    async def close(self) -> None:
        """End what was spawned. A task that is cancelled before it has begun can tell nobody of it: each begins first, and
        what is spawned meanwhile is let end by itself, while there is a database."""
        spawned = list(self._tasks)
        try:
            await asyncio.sleep(0)
        finally:
            for task in spawned:
                task.cancel()

    def _reap(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("task %s ended by %s: %s", task.get_name(), type(error).__name__, error, exc_info=error)
