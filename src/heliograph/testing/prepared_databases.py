"""The databases of one test process: the next one is made, and the last one dropped, while a test runs."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

from heliograph.testing.database import TestServer

T = TypeVar("T")

_THREAD = "heliograph databases"  # a replay does not wait for threads with this prefix (recording/replay_loop.py)


class PreparedDatabases:
    """Fresh databases of a test server, for one test after another. A thread makes and drops them, so fixtures of every async plugin may call it.

    The first two are made when they are taken. Each later one is made while the test before it runs: a process that takes two will take more.
    A test may stop the server or end its connections: a copy or a drop that fails meanwhile is repeated after it.
    """

    def __init__(self, server: TestServer):
        self._server = server
        self._thread = ThreadPoolExecutor(1, _THREAD)
        self._next: Future[str] | None = None
        self._drops: dict[Future[None], str] = {}  # the URLs of the databases
        self._taken = 0

    def take(self) -> str:
        """Return the URL of a new database with the schema installed."""
        if self._next is None or _has_failed(self._next):
            self._next = self._begin(self._server.create())
        url = self._next.result()  # an interruption leaves it for `close`
        self._taken += 1
        self._next = self._begin(self._server.create()) if self._taken > 1 else None
        return url

    def release(self, url: str) -> None:
        """Drop a database in the background, and close its connections. Repeats drops that have failed, and raises the error of a repetition."""
        ended = [each for each in self._drops if each.done()]
        self._drops[self._begin(self._server.drop(url))] = url
        self._repeat_failed(ended)

    def settle(self) -> None:
        """Wait until the next database is ready, and the others are dropped."""
        begun: list[Future[Any]] = [*self._drops]
        wait(begun if self._next is None else [*begun, self._next])

    def close(self) -> None:
        """Drop the database that no test has taken, and wait for all drops. Raises the first error of a drop that was repeated."""
        try:
            if self._next is not None and not _has_failed(self._next):
                self.release(self._next.result())
            self._next = None
            self._repeat_failed([*self._drops])
        finally:
            self._thread.shutdown()

    def _repeat_failed(self, drops: list[Future[None]]) -> None:
        urls = [url for drop in drops if (url := self._drops.pop(drop)) and _has_failed(drop)]
        for repeated in [self._begin(self._server.drop(url)) for url in urls]:
            repeated.result()

    def _begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return self._thread.submit(asyncio.run, work)


def _has_failed(work: Future[Any]) -> bool:
    return work.exception() is not None  # waits for its end
