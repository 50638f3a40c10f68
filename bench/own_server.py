"""Run a measurement on an embedded PostgreSQL server of its own, which is deleted afterwards."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from heliograph.embedded.server import open_embedded

T = TypeVar("T")


def on_own_server(name: str, measure: Callable[[str], Awaitable[T]]) -> T:
    """Return the result of `measure`, which receives the URL of the server. Prints the cores and the load first."""
    home = Path(tempfile.mkdtemp(prefix=f"heliograph-{name}-"))
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    try:
        with open_embedded(home, version=18) as server:
            result = asyncio.run(_awaited(measure, server.url))
        server.wait_stopped(30)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return result


async def _awaited(measure: Callable[[str], Awaitable[T]], url: str) -> T:
    return await measure(url)
