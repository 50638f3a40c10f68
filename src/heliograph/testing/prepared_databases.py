"""The databases of one test process: the next one is made, and the last one dropped, while a test runs."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any, TypeVar

from heliograph.testing.database import TestServer

T = TypeVar("T")

THREAD = "heliograph databases"  # the name of its thread, which is none of an application


class PreparedDatabases:
    """Fresh databases of a test server, for one test after another. Fixtures of every async plugin may call it: it works in a thread of its own.

    The first database is made when it is taken. From the second on, the next one is ready, because a test process that takes two will
    take more.
    """

    def __init__(self, server: TestServer):
        self._server = server
        self._thread = ThreadPoolExecutor(1, THREAD)
        self._next: Future[str] | None = None
        self._drops: set[Future[None]] = set()
        self._taken = 0

    def take(self) -> str:
        """Return the URL of a new database with the schema installed."""
        ready, self._next = self._next or self._begin(self._server.create()), None
        url = ready.result()
        self._taken += 1
        if self._taken > 1:
            self._next = self._begin(self._server.create())
        return url

    def release(self, url: str) -> None:
        """Drop a database in the background, and close its connections. An error of the drop is raised by a later call."""
        for drop in {each for each in self._drops if each.done()}:
            self._drops.remove(drop)
            drop.result()
        self._drops.add(self._begin(self._server.drop(url)))

    def settle(self) -> None:
        """Wait until the next database is ready, and the others are dropped."""
        begun: list[Future[Any]] = [*self._drops]
        wait(begun if self._next is None else [*begun, self._next])

    def close(self) -> None:
        """Drop the database that no test has taken, and wait for all drops. Raises the first error of a drop."""
        if self._next is not None:
            with suppress(Exception):  # no test needs it
                self.release(self._next.result())
            self._next = None
        self._thread.shutdown()
        for drop in self._drops:
            drop.result()

    def _begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return self._thread.submit(asyncio.run, work)
