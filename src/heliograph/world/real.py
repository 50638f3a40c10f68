"""The real world: asyncio, PostgreSQL and doorbells behind the seam."""

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

from heliograph.errors import HeliographError, StoreUnavailable, TurnTimedOut, format_exception
from heliograph.ids import make_id
from heliograph.records import Event
from heliograph.turn.interruptions import Interruption
from heliograph.world.bell_tokens import Tokens
from heliograph.world.seam import BellKey, Task, Transaction
from heliograph.world.subscriptions import Subscription, Subscriptions

log = logging.getLogger("heliograph.world")
T = TypeVar("T")

_LEARN_SECONDS = 5.0  # between two attempts to fetch the key of a project's bells


class Store(Protocol):
    """Calls kernel functions; `heliograph.ledger.pool.Database` is one."""

    async def call(self, function: str, *args: object) -> Any: ...


class TransactionSource(Protocol):
    """Opens transactions for transactional steps; `heliograph.ledger.transactions.Transactions` is one."""

    def open(self) -> AbstractAsyncContextManager[Transaction]: ...


class Doorbell(Protocol):
    """A wire to other processes; rings may be lost, events may arrive twice. Implemented by `heliograph.doorbell.base.Bell`."""

    @property
    def is_up(self) -> bool: ...

    @property
    def carries_names(self) -> bool: ...

    @property
    def carries_commands(self) -> bool: ...

    def ring(self, keys: Iterable[str], agents: Iterable[str] = ()) -> None: ...

    def publish_event(self, subject: str, body: dict[str, Any]) -> None: ...

    async def publish(self, events: Sequence[Event]) -> None: ...


def _settle(future: concurrent.futures.Future[T], function: Callable[..., T], *args: object) -> None:
    if not future.set_running_or_notify_cancel():  # cancelled before the start; from here on it cannot be
        return
    try:
        result = function(*args)
    except (StopIteration, GeneratorExit) as error:  # a future cannot raise these
        future.set_exception(RuntimeError(f"{type(error).__name__} left the function: {error}"))
    except BaseException as error:  # raised where the result is awaited
        future.set_exception(error)
    else:
        future.set_result(result)


async def within(seconds: float | None, work: Awaitable[T]) -> T:
    """`World.within` for any event loop, so that real and simulated worlds behave the same."""
    scope, mine = asyncio.timeout(seconds), asyncio.current_task()
    try:
        async with scope:
            return await work
    except GeneratorExit:
        if _running() is mine:  # a running coroutine cannot be closed, so the work raised it
            raise RuntimeError("GeneratorExit left the function") from None
        raise
    except asyncio.CancelledError:
        if mine is not None and not mine.cancelling():  # this task was not cancelled, so the work raised it
            raise RuntimeError("it was cancelled from within") from None
        raise
    except TimeoutError:
        if scope.expired():  # a TimeoutError of the work itself propagates
            raise TurnTimedOut(f"it took longer than {seconds:g} s") from None
        raise
    except (Exception, BaseExceptionGroup, SystemExit, KeyboardInterrupt, Interruption):
        raise
    except BaseException as error:  # of a library, unknown to the runtime's handlers
        raise RuntimeError(f"{format_exception(error)} left the function") from error


def _running() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no loop runs
        return None


class RealWorld:
    """See `heliograph.world.seam.World`. `wires` reach other processes, preferred first; any may be down."""

    def __init__(self, store: Store, transactions: TransactionSource):
        self._store = store
        self._transactions = transactions
        self._loop = asyncio.get_running_loop()
        self._thread = threading.current_thread()
        self.tokens = Tokens()
        self.subscriptions = Subscriptions(self.tokens)
        self._learning: dict[str, asyncio.Lock] = {}
        self._keeps_learning: set[str] = set()  # projects: one task for each, for all its listeners
        self._tasks: set[asyncio.Task[None]] = set()
        self.wires: list[Doorbell] = []

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def new_id(self, kind: str) -> str:
        return make_id(kind, self.now(), os.urandom(10))

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def spawn(self, name: str, work: Coroutine[Any, Any, None]) -> Task:
        if threading.current_thread() is not self._thread:  # a plain agent function calls from its own thread
            return asyncio.run_coroutine_threadsafe(work, self._loop)
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)  # asyncio itself keeps only a weak reference
        task.add_done_callback(self._reap)
        return task

    async def within(self, seconds: float | None, work: Awaitable[T]) -> T:
        return await within(seconds, work)

    async def run_sync(self, function: Callable[..., T], *args: object, ended: Callable[[], None] | None = None) -> T:
        """Run the function in a new thread. In a pool, functions that outlive their timeout would starve the others, and
        the pool's threads would keep the process from exiting."""
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
        except RuntimeError:  # too many threads: the function did not start, so this is its end
            if ended is not None:
                ended()
            raise
        return await asyncio.wrap_future(future)

    async def call(self, function: str, *args: object) -> Any:
        return await self._store.call(function, *args)

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        return self._transactions.open()

    def subscribe(self, keys: Iterable[BellKey]) -> Subscription:
        subscription = self.subscriptions.subscribe(keys)
        unknown = {key.project for key in subscription.keys if key.project and not self.tokens.has(key.project)}
        for project in unknown - self._keeps_learning:
            self._keeps_learning.add(project)
            self.spawn(f"bell key of {project}", self._keep_learning(project))
        return subscription

    def ring(self, keys: Iterable[BellKey], agents: Iterable[str] = ()) -> None:
        keys = list(keys)
        self.subscriptions.ring(keys)
        remote = [key for key in keys if not key.name.startswith("slot:")]
        unknown = {key.project for key in remote if not self.tokens.has(key.project)}
        if unknown:
            self.spawn("ring", self._learn_and_send(unknown, remote, list(agents)))
        else:
            self._send(remote, agents)

    async def learn(self, project: str) -> bool:
        """Fetch the key of a project's bells, which rings to other processes need.

        Returns False for a login without access to the key.
        """
        async with self._learning.setdefault(project, asyncio.Lock()):
            if not self.tokens.has(project):
                try:
                    self.tokens.add(project, await self._store.call("bell_key", project))
                except HeliographError as error:
                    log.info(
                        "the bells of project %s cannot be used, work is found by polling: %s", project, error.message
                    )
                    return False
                self.subscriptions.learned(project)
        return True

    async def _keep_learning(self, project: str) -> None:
        try:
            while not await self.learn(project):
                await self.sleep(_LEARN_SECONDS)
        finally:
            self._keeps_learning.discard(project)

    async def _learn_and_send(self, projects: Iterable[str], keys: Sequence[BellKey], agents: Sequence[str]) -> None:
        if all([await self.learn(project) for project in projects]):
            self._send(keys, agents)

    def _send(self, keys: Sequence[BellKey], agents: Iterable[str]) -> None:
        wire = next((wire for wire in self.wires if wire.is_up), None)  # every process listens on all of them
        if wire is not None and keys:
            wire.ring([self._on_wire(key, wire) for key in keys], agents)

    def _on_wire(self, key: BellKey, wire: Doorbell) -> str:
        return key.name if wire.carries_names and key.name.startswith("work:") else self.tokens.of(key)

    def publish_event(self, subject: str, body: dict[str, Any]) -> None:
        for wire in self.wires:
            if wire.is_up:
                wire.publish_event(subject, body)

    async def publish(self, project: str, events: Sequence[Event]) -> None:
        if not await self.learn(project):
            raise StoreUnavailable(f"{len(events)} events are not published yet: the bell key of the project is not known; "
                                   "the relay retries")  # fmt: skip
        try:
            for wire in self.wires:  # on all wires, or the event stays in the outbox
                carried = [e for e in events if wire.carries_commands or not e.subject.startswith("cmd.")]
                if carried and not wire.carries_names:
                    carried = [self.tokens.opaque(project, event) for event in carried]
                if carried:
                    await wire.publish(carried)
        except OSError as error:
            raise StoreUnavailable(f"{len(events)} events are not published yet: {error}") from error

    async def failpoint(self, name: str) -> None:
        """Does nothing in the real world."""

    async def close(self) -> None:
        """Cancel the spawned tasks. Each starts first, because a task cancelled before its start runs no cleanup.

        Tasks spawned meanwhile end by themselves, while the database is open.
        """
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
