"""Questions to the database over one connection of their own, each with a time limit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from heliograph.errors import StoreUnavailable
from heliograph.ledger.pool import Database

T = TypeVar("T")

DATABASE_SECONDS = 2.0  # the time of one question


class Probe:
    """One connection, which opens when it is needed first. A caller asks one question at a time."""

    def __init__(self, url: str, project: str):
        self._url = url
        self._project = project
        self._database: Database | None = None
        self._questions: set[asyncio.Task[Any]] = set()

    async def ask(self, question: Callable[[Database], Awaitable[T]]) -> T:
        """The answer to a question. Raises StoreUnavailable after some time, and the errors of the question.

        A driver that is cancelled waits for the server. So a question without an answer ends in the background, with its connection.
        """
        asking = asyncio.create_task(self._ask(question))
        self._questions.add(asking)
        asking.add_done_callback(self._questions.discard)
        try:
            await asyncio.wait({asking}, timeout=DATABASE_SECONDS)
            if asking.done():
                return asking.result()
        finally:
            if not asking.done():
                asking.cancel()
                self._abandon()
        raise StoreUnavailable(f"PostgreSQL did not respond within {DATABASE_SECONDS:g} s")

    async def close(self) -> None:
        """Close the connection, at once if the server does not respond."""
        if self._database is None:
            return
        closing = asyncio.create_task(self._database.close())
        await asyncio.wait({closing}, timeout=DATABASE_SECONDS)
        if not closing.done():
            self._abandon()

    async def _ask(self, question: Callable[[Database], Awaitable[T]]) -> T:
        if self._database is None:
            self._database = await Database.open(self._url, size=1, project=self._project)
        return await question(self._database)

    def _abandon(self) -> None:
        if self._database is not None:
            self._database.abandon()
            self._database = None
