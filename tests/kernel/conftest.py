"""The kernel as SQL: every test of this folder runs on PostgreSQL 18 and 16, calls functions, and chooses the time.

All tests of one server share a database, and each has a project of its own in it: that projects never meet (S1) is
what they stand on. After each test the doctor looks at its project; `is_corrupted` tells it that the test meant harm.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest
import pytest_asyncio

from heliograph.testing.database import TestServer
from heliograph.testing.transitions import guard_transitions
from tests.kernel.kit import Connect, Kernel, connect, new_project

VERSIONS = (18,) if os.environ.get("HELIOGRAPH_TEST_DATABASE_URL") else (18, 16)  # that server is the one it is


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    chosen = any(mark.args[0] == "postgres" for mark in metafunc.definition.iter_markers("parametrize"))
    if "postgres" in metafunc.fixturenames and not chosen:
        metafunc.parametrize("postgres", VERSIONS, indirect=True, scope="session", ids=lambda version: f"pg{version}")


@pytest.fixture(scope="session")
def shared_url(postgres: TestServer) -> Iterator[str]:
    """A database with the schema, for all tests of one server. It refuses moves that no agent may make."""
    url = asyncio.run(postgres.create())
    asyncio.run(_guard(url))
    yield url
    asyncio.run(postgres.drop(url))


async def _guard(url: str) -> None:
    connection = await connect(url)
    await guard_transitions(connection)
    await connection.close()


@pytest_asyncio.fixture
async def kernel(shared_url: str) -> AsyncIterator[Kernel]:
    """The kernel's functions for an empty project."""
    made = Kernel(await connect(shared_url), new_project())
    yield made
    found = [] if made.is_corrupted else await made.call("doctor", False)
    await made.connection.close()
    assert found == []


@pytest_asyncio.fixture
async def beside(shared_url: str, kernel: Kernel) -> AsyncIterator[Connect]:
    """Makes further kernels of the same project, each on a connection of its own."""
    opened: list[asyncpg.Connection] = []

    async def make() -> Kernel:
        opened.append(await connect(shared_url))
        return Kernel(opened[-1], kernel.project)

    yield make
    for connection in opened:
        await connection.close()
