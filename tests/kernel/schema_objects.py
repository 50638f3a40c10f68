"""The objects of an installed schema."""

from __future__ import annotations

import asyncpg


async def objects(connection: asyncpg.Connection) -> list[str]:
    """All objects in the schema."""
    rows = await connection.fetch(
        "select oid::regclass::text from pg_class where relnamespace = to_regnamespace('heliograph')"
        " union all select oid::regprocedure::text from pg_proc where pronamespace = to_regnamespace('heliograph') order by 1"
    )
    return [row[0] for row in rows]
