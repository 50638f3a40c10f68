"""The connection of a check: behind any connection pooler, the server rejects what writes."""

from __future__ import annotations

import pytest

from heliograph.errors import KernelRejected
from heliograph.ledger.pool import Database

MEMORY: dict[str, object] = {"memory_id": "m", "agent": None, "text": "t", "metadata": {}, "trust": None}


@pytest.mark.proves("P-16")
async def test_server_rejects_writes_although_a_pooler_drops_the_settings_of_the_session(shared_url: str) -> None:
    database = await Database.open(shared_url, size=1, project="read-only", reads_only=True)
    try:
        await database.fetch("set default_transaction_read_only = off")
        with pytest.raises(KernelRejected, match="read-only transaction"):
            await database.call("remember", "read-only", [MEMORY])
        with pytest.raises(KernelRejected, match="read-only transaction"):
            await database.fetch("create table public.written (n integer)")
        assert (await database.fetch("select 1 as one"))[0]["one"] == 1
    finally:
        await database.close()
