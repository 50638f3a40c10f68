"""Create databases with many finished turns: the cost of a turn must not grow with their number."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg

from bench.full import run_one
from bench.place import Place

HISTORY = Path(__file__).with_name("sql") / "history.sql"


@asynccontextmanager
async def database_with_history(place: Place, turns: int) -> AsyncIterator[str]:
    """Create a database with one ended run of one turn and `turns` copies of it, analyze it, and return its URL."""
    async with place.database() as url:
        run_id = await run_one(url)
        connection = await asyncpg.connect(url)
        try:
            await connection.execute(HISTORY.read_text(encoding="utf-8"))
            await connection.execute("select history.copy_run($1, $2)", run_id, turns)
            await connection.execute("drop schema history cascade")
            await connection.execute("vacuum analyze")
        finally:
            await connection.close()
        yield url
