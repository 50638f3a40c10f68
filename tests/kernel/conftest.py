"""Fixtures of the kernel tests, which call SQL functions with a chosen time, on PostgreSQL 18 and 16.

All tests of one server share a database, and each has its own project in it, because projects are isolated (S1). After each
test the doctor checks its project, unless the test sets `is_corrupted`.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest
import pytest_asyncio

from heliograph.testing.database import TestServer
from heliograph.testing.kernel.row_guard import guard_rows
from heliograph.testing.kernel.transition_guard import guard_transitions
from tests.kernel.kit import START, Connect, Connections, Kernel, connect, new_project
from tests.marks import excludes_more

_EMPTY = itertools.count(1)  # numbers of empty databases

VERSIONS = [pytest.param(18, id="pg18")]
if not os.environ.get("HELIOGRAPH_TEST_DATABASE_URL"):  # which names the one server there is
    VERSIONS.append(pytest.param(16, id="pg16", marks=pytest.mark.more))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    chosen = any(mark.args[0] == "postgres" for mark in metafunc.definition.iter_markers("parametrize"))
    if "postgres" in metafunc.fixturenames and not chosen:
        # where `-m` excludes PostgreSQL 16, thousands of items need not be made and dropped again
        versions = VERSIONS[:1] if excludes_more(metafunc.config.option.markexpr) else VERSIONS
        metafunc.parametrize("postgres", versions, indirect=True, scope="session")


@pytest.fixture(scope="session")
def shared_url(postgres: TestServer) -> Iterator[str]:
    """The URL of one server's database for all tests. It rejects changes of status outside the transition
    table, and rows that no function writes."""
    url = asyncio.run(postgres.create())
    asyncio.run(_guard(url))
    yield url
    asyncio.run(postgres.drop(url))


async def _guard(url: str) -> None:
    connection = await connect(url)
    await guard_transitions(connection)
    await guard_rows(connection)
    await connection.close()


@pytest_asyncio.fixture(scope="session")
async def connections(shared_url: str) -> AsyncIterator[Connections]:
    """Open connections for reuse, because a new one compiles each kernel function, which takes longer than most tests."""
    made = Connections(shared_url)
    yield made
    await made.close()


@pytest_asyncio.fixture
async def kernel(connections: Connections) -> AsyncIterator[Kernel]:
    """The kernel's functions for an empty project, whose events are published on PostgreSQL."""
    made = Kernel(await connections.take(), new_project())
    declare = "insert into heliograph.project_wires values ($1, 'postgres', $2)"
    await made.connection.execute(declare, made.project, START)
    yield made
    found = [] if made.is_corrupted else await made.call("doctor", False)
    await connections.release(made.connection)
    assert found == []


@pytest_asyncio.fixture
async def beside(connections: Connections, kernel: Kernel) -> AsyncIterator[Connect]:
    """A function that makes further kernels of the same project, each on its own connection."""
    taken: list[Kernel] = []

    async def make() -> Kernel:
        taken.append(Kernel(await connections.take(), kernel.project))
        return taken[-1]

    yield make
    for each in taken:
        await connections.release(each.connection)


@pytest_asyncio.fixture
async def empty_url(postgres: TestServer) -> AsyncIterator[str]:
    """A database with nothing in it."""
    name = f"empty_{os.getpid()}_{next(_EMPTY)}"
    outside = await asyncpg.connect(postgres.admin_url)
    await outside.execute(f'create database "{name}"')
    yield postgres.url(name)
    await postgres.drop(postgres.url(name))
    await outside.close()


@pytest_asyncio.fixture
async def connection(empty_url: str) -> AsyncIterator[asyncpg.Connection]:
    opened = await connect(empty_url)
    yield opened
    await opened.close()
