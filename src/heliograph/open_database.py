"""Open the database that the settings name, or the embedded one, and check its schema."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from heliograph.config import Settings, read_settings
from heliograph.ledger.install import check, install, read_state
from heliograph.ledger.pool import Database, explain
from heliograph.ledger.reader import Reader

if TYPE_CHECKING:
    from heliograph.embedded.server import EmbeddedServer


@asynccontextmanager
async def open_reader(settings: Settings | None = None, *, reads_only: bool = False) -> AsyncIterator[Reader]:
    """Open a reader of the ledger, without doorbells and workers. Raises SetupError, StoreUnavailable, Rejected.

    reads_only: the server rejects every write; an embedded database is not upgraded.
    """
    settings = settings or read_settings(os.environ)
    async with open_database(settings, reads_only=reads_only) as database:
        await prepare_schema(database, installs=settings.database_url is None and not reads_only)
        yield Reader(database, settings.project)


@asynccontextmanager
async def open_database(settings: Settings, *, reads_only: bool = False) -> AsyncIterator[Database]:
    """Open the database of the settings, or start or join the embedded one. It does not check the schema.

    reads_only: the server rejects every write.
    """
    embedded = None
    if settings.database_url is None:
        embedded = await _embedded(settings)
    url = embedded.url if embedded is not None else settings.database_url
    assert url is not None
    try:
        database = await Database.open(url, project=settings.project, reads_only=reads_only,
                                       ensure_running=None if embedded is None else embedded.ensure_running)  # fmt: skip
        try:
            yield database
        finally:
            await database.close(settings.close_seconds)
    finally:
        if embedded is not None:
            await asyncio.to_thread(embedded.close)


async def _embedded(settings: Settings) -> EmbeddedServer:
    """Open the embedded server in a thread. Threads cannot be cancelled, so a cancelled call closes the server once it is open."""
    from heliograph.embedded.server import open_embedded  # not needed with a URL

    opening = asyncio.ensure_future(asyncio.to_thread(open_embedded, settings.home, version=settings.postgres_version))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(_close_opened)
        raise


def _close_opened(opening: asyncio.Future[EmbeddedServer]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


async def prepare_schema(database: Database, *, installs: bool = True) -> None:
    """Install or upgrade the schema if `installs`, then check its version. Raises Rejected, StoreUnavailable."""
    try:
        connection = await database.acquire()
        try:
            if installs:
                await install(connection)
            check(await read_state(connection))
        finally:
            await database.release(connection)
    except Exception as error:  # for example a lost connection, an ordinary outage
        raise explain(error, "the schema check") from error
