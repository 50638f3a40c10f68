"""The real world: the clock, asyncio, threads, PostgreSQL and the bells behind the seam."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import logging
import os
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any, Protocol, TypeVar

from heliograph.ids import make_id
from heliograph.outbox_records import Event
from heliograph.world.bells import Bells, Store
from heliograph.world.seam import BellKey, Task, Transaction
from heliograph.world.signal_bells import WRITERS
from heliograph.world.subscriptions import Subscription
from heliograph.world.user_code import settle, within

log = logging.getLogger("heliograph.world")
T = TypeVar("T")


class TransactionSource(Protocol):
    """Opens transactions for transactional steps; `heliograph.ledger.transactions.Transactions` is one."""

    def open(self) -> AbstractAsyncContextManager[Transaction]: ...


class _RingingTransaction:
    """A transaction whose commit rings for subscribers, as `RealWorld.call` does."""

    def __init__(self, transaction: Transaction, bells: Bells):
        self._transaction = transaction
        self._bells = bells

    @property
    def connection(self) -> Any:
        return self._transaction.connection

    async def commit(self, function: str, *args: object) -> Any:
        answer = await self._transaction.commit(function, *args)
        self._bells.called(function, args, answer)
        return answer

    async def was_committed(self) -> bool:
        return await self._transaction.was_committed()


class RealWorld:
    """The `heliograph.world.seam.World` of production: PostgreSQL, asyncio, and the clock of this machine."""

    def __init__(self, store: Store, transactions: TransactionSource):
        self._store = store
        self._transactions = transactions
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._tasks: set[asyncio.Task[None]] = set()
        self.bells = Bells(store, self.spawn)

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def new_id(self, kind: str) -> str:
        return make_id(kind, self.now(), os.urandom(10 if kind == "token" else 8))  # a token is secret

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def spawn(self, name: str, work: Coroutine[Any, Any, None]) -> Task:
        if threading.get_ident() != self._thread:  # a plain agent function calls from its own thread
            return asyncio.run_coroutine_threadsafe(work, self._loop)
        task = self._loop.create_task(work, name=name)
        self._tasks.add(task)  # asyncio itself keeps only a weak reference
        task.add_done_callback(self._reap)
        return task

    def within(self, seconds: float | None, work: Awaitable[T]) -> Coroutine[Any, Any, T]:
        return within(seconds, work)

    async def run_sync(self, function: Callable[..., T], *args: object, ended: Callable[[], None] | None = None) -> T:
        """Run the function in a new thread. In a pool, functions that outlive their timeout would starve the others, and
        the pool's threads would keep the process from exiting."""
        future: concurrent.futures.Future[T] = concurrent.futures.Future()
        context, work = contextvars.copy_context(), partial(settle, future, function, *args)

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
        answer = await self._store.call(function, *args)
        if function in WRITERS:
            self.bells.called(function, args, answer)
        elif function == "subscribe" and "bells" in answer:
            self.bells.given(str(args[0]), answer["bells"])
        return answer

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        async with self._transactions.open() as transaction:
            yield _RingingTransaction(transaction, self.bells)

    def subscribe(self, keys: Iterable[BellKey]) -> Subscription:
        return self.bells.subscribe(keys)

    def ring(self, keys: Iterable[BellKey], agents: Iterable[str] = ()) -> None:
        self.bells.ring(list(keys), agents)

    @property
    def is_observed(self) -> bool:
        return self.bells.is_observed

    def publish_event(self, subject: str, body: dict[str, Any]) -> None:
        self.bells.publish_event(subject, body)

    async def publish(self, project: str, events: Sequence[Event]) -> None:
        await self.bells.publish(project, events)

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
