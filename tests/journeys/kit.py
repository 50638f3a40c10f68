"""Helpers of the journeys that read the database beside the processes."""

from __future__ import annotations

from typing import Any

import asyncpg

from tests.faces.cli_support import warm


def forked(module: str, *arguments: str) -> list[str]:
    """Return the command of a process that runs `python -m MODULE`: a fork of the warm `helio`, which saves a second of imports.

    If the process is killed, the fork lives for a moment longer.
    """
    return warm().client("-m", module, *arguments)


async def fetch(url: str, statement: str) -> list[Any]:
    """Run one statement on its own connection."""
    connection = await asyncpg.connect(url)
    try:
        return list(await connection.fetch(statement))
    finally:
        await connection.close()
