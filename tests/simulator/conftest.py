"""Fixtures of the simulator tests: a PostgreSQL backend."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from heliograph.testing.database import TestServer
from heliograph.testing.kernel import reports
from heliograph.testing.kernel.backend import PostgresBackend
from heliograph.testing.kernel.in_memory import InMemoryKernel


@pytest.fixture
def in_memory() -> InMemoryKernel:
    return InMemoryKernel()


@pytest.fixture(scope="session")
def real(postgres: TestServer) -> Iterator[PostgresBackend]:
    """A PostgreSQL backend, which each test empties first."""
    url = asyncio.run(postgres.create())
    reports.LOGIN = urlsplit(url).username or reports.LOGIN  # the in-memory kernel has the same session user
    backend = PostgresBackend(url)
    yield backend
    backend.close()
    asyncio.run(postgres.drop(url))
