"""A worker that runs beside a test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from heliograph import Heliograph
from heliograph.runtime import Runtime
from heliograph.worker.claim_loop import Worker

NEVER_SECONDS = 3600.0  # no test takes that long


@asynccontextmanager
async def serving(
    runtime: Runtime, app: Heliograph, *, sweeps: bool = True, concurrency: int = 16
) -> AsyncIterator[Worker]:
    """A worker of `app`; it stops after the block. sweeps=False: its watchdog acts on rings only."""
    worker = runtime.worker(app.workflow, concurrency=concurrency)
    if not sweeps:
        worker.watchdog.interval_seconds = NEVER_SECONDS
    task = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        await task
