"""Helpers of the journeys that read the database beside the processes."""

from __future__ import annotations

from typing import Any

import asyncpg


async def fetch(url: str, statement: str) -> list[Any]:
    """Run one statement on its own connection."""
    connection = await asyncpg.connect(url)
    try:
        return list(await connection.fetch(statement))
    finally:
        await connection.close()
