"""Kernels for simulations: the twin, and a PostgreSQL that this process has for itself."""

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
def twin() -> InMemoryKernel:
    return InMemoryKernel()


@pytest.fixture(scope="session")
def real(postgres: TestServer) -> Iterator[PostgresBackend]:
    """Emptied by whoever uses it."""
    url = asyncio.run(postgres.create())
    reports.LOGIN = urlsplit(url).username or reports.LOGIN  # the twin is logged in as we are
    backend = PostgresBackend(url)
    yield backend
    backend.close()
    asyncio.run(postgres.drop(url))
