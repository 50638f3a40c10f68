"""Kernels for simulations: the twin, and a PostgreSQL that this process has for itself."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from heliograph.testing.backend import PostgresBackend
from heliograph.testing.database import TestServer
from heliograph.testing.twin import Twin


@pytest.fixture
def twin() -> Twin:
    return Twin()


@pytest.fixture(scope="session")
def real(postgres: TestServer) -> Iterator[PostgresBackend]:
    """Emptied by whoever uses it."""
    url = asyncio.run(postgres.create())
    backend = PostgresBackend(url)
    yield backend
    backend.close()
    asyncio.run(postgres.drop(url))
