"""A database for the tests of the command."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from heliograph.testing.database import TestServer


@pytest.fixture(scope="module")
def shared_url(postgres: TestServer) -> Iterator[str]:
    """A database with the schema."""
    url = asyncio.run(postgres.create())
    yield url
    asyncio.run(postgres.drop(url))
