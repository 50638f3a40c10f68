"""One pool of connections for all runtimes of a test process: a new connection compiles the kernel's functions again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import asyncpg
import pytest

from heliograph import runtime
from heliograph.config import Settings
from heliograph.ledger.pool import SESSION_NAME, Database
from heliograph.runtime import Runtime, open_runtime

APPLICATION = {"application_name": SESSION_NAME}


class WarmPool:
    """An open pool. One runtime at a time uses it; a second runtime of the same test opens its own."""

    def __init__(self, database: Database):
        self._url = database.url
        self._pool = database._pool

    @classmethod
    async def open(cls, url: str) -> WarmPool:
        return cls(await Database.open(url))

    async def close(self) -> None:
        self._pool.terminate()

    @asynccontextmanager
    async def open_runtime(self, settings: Settings) -> AsyncIterator[Runtime]:
        """A runtime on these connections, which show the project of `settings`."""
        await self._show(settings.project)
        database = Database(self._pool, self._url, {"heliograph.project": settings.project})

        @asynccontextmanager
        async def lent(_: Settings) -> AsyncIterator[Database]:
            yield database

        async with AsyncExitStack() as stack:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(runtime, "open_database", lent)
                opened = await stack.enter_async_context(open_runtime(settings))
            stack.push_async_callback(database._kept.close)  # which would keep them from the next runtime
            yield opened

    async def _show(self, project: str) -> None:
        """Let the views show this project, on each connection that is open and each that will be."""
        self._pool.set_connect_args(self._url, server_settings={**APPLICATION, "heliograph.project": project},
                                    command_timeout=10.0)  # fmt: skip
        taken = [await self._pool.acquire() for _ in range(self._pool.get_idle_size())]
        for connection in taken:
            try:
                await connection.execute("select set_config('heliograph.project', $1, false)", project)
            except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
                connection.terminate()
            await self._pool.release(connection)
