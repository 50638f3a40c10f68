"""Serve the status of a worker while it runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from heliograph.policy.listening import Listening
from heliograph.status.listener import Listener
from heliograph.status.measurements import Measurements
from heliograph.status.pages import StatusPages
from heliograph.telemetry.metrics import Registry
from heliograph.worker.claim_loop import Worker


@asynccontextmanager
async def serve_status(
    worker: Worker, listening: Listening, registry: Registry, database_url: str, project: str
) -> AsyncIterator[str]:
    """Serve the pages of a worker while the context is open; yield the URL. Raises SetupError (`address_in_use`)."""
    measurements = Measurements(worker, registry, database_url, project)
    try:
        async with Listener(listening, StatusPages(measurements).pages, lambda: datetime.now(UTC)).open() as url:
            yield url
    finally:
        await measurements.close()
