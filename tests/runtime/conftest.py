"""The worker on a real PostgreSQL: after each test the doctor, the catalog and the trace have no complaint."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from heliograph.config import Settings
from heliograph.runtime import open_runtime
from tests.runtime.kit import Rig


@pytest_asyncio.fixture
async def rig(database_url: str) -> AsyncIterator[Rig]:
    """An open runtime on an empty database."""
    async with open_runtime(Settings(database_url=database_url)) as runtime:
        made = Rig(runtime, database_url)
        yield made
        await made.check()
