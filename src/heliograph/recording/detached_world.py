"""A world without an outside: nothing leaves it. Its subclasses decide what comes in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, NoReturn

from heliograph.outbox_records import Event
from heliograph.world.seam import BellKey, Subscription, Task, Transaction


async def never() -> NoReturn:
    """Wait for the end of the loop."""
    await asyncio.get_running_loop().create_future()
    raise AssertionError("nobody sets this future")


class DetachedWorld:
    """The part of `heliograph.world.seam.World` that reaches the database, other processes and observers."""

    def __init__(self, *, is_observed: bool = False):
        self._is_observed = is_observed

    def spawn(self, name: str, work: Coroutine[Any, Any, None]) -> Task:
        return asyncio.get_running_loop().create_task(work, name=name)

    async def call(self, function: str, *args: object) -> Any:
        raise AssertionError(f"replays and checks make no kernel call, but the code called {function}")

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        return _no_transaction()

    def subscribe(self, keys: Iterable[BellKey]) -> Subscription:
        raise AssertionError("a turn subscribes to nothing")

    def ring(self, keys: Iterable[BellKey], agents: Iterable[str] = ()) -> None:
        """Nobody listens."""

    @property
    def is_observed(self) -> bool:
        return self._is_observed

    def publish_event(self, subject: str, body: dict[str, Any]) -> None:
        """Nobody listens."""

    async def publish(self, project: str, events: Sequence[Event]) -> None:
        """Nobody listens."""

    async def failpoint(self, name: str) -> None:
        """A replay has no faults."""


class _NoTransaction:
    """The transaction of a step that does not run."""

    connection = None

    async def commit(self, function: str, *args: object) -> Any:
        raise AssertionError(f"replays and checks make no kernel call, but the code called {function}")

    async def was_committed(self) -> bool:
        return False


@asynccontextmanager
async def _no_transaction() -> AsyncIterator[Transaction]:
    yield _NoTransaction()
