"""A pytest plugin: `pytest_plugins = ["heliograph.testing.plugin"]` gives each test a database of its own."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from heliograph.ledger.pool import Database
from heliograph.testing.database import TestServer


@pytest.fixture(scope="session")
def postgres(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestServer]:
    """A server shared by all test processes of one run.

    The embedded server, PostgreSQL 18 unless an indirect parameter gives another version. If HELIOGRAPH_TEST_DATABASE_URL is
    set, the server at that URL.
    """
    shared = tmp_path_factory.getbasetemp()
    if hasattr(request.config, "workerinput"):  # under xdist each process has a folder below the run's own
        shared = shared.parent
    server = TestServer(
        shared / "heliograph-home", getattr(request, "param", 18), os.environ.get("HELIOGRAPH_TEST_DATABASE_URL")
    )
    yield server
    server.close()


@pytest_asyncio.fixture
async def database_url(postgres: TestServer) -> AsyncIterator[str]:
    """The URL of an empty database with the schema installed. It is dropped after the test."""
    url = await postgres.create()
    yield url
    await postgres.drop(url)


@pytest_asyncio.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """An open pool on `database_url`."""
    opened = await Database.open(database_url, size=4)
    yield opened
    await opened.close()
