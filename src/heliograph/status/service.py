"""Serve the status of a worker while it runs, and send its metrics to a collector."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from heliograph.policy.listening import Listening
from heliograph.status.measurements import Measurements
from heliograph.telemetry.metrics import Family, Registry
from heliograph.worker.claim_loop import Worker
from heliograph.world.cancellation import cancel

if TYPE_CHECKING:
    from heliograph.telemetry.otel_metrics import MetricExport

log = logging.getLogger("heliograph.status")

LAST_SECONDS = 2.0  # how long the end of a worker waits for the collector
LAST_MEASURE_SECONDS = 0.5  # the part of it for the database


@asynccontextmanager
async def serve_status(
    worker: Worker,
    listening: Listening | None,
    export: MetricExport | None,
    registry: Registry,
    database_url: str,
    project: str,
) -> AsyncIterator[str | None]:
    """Serve the pages of a worker and send its metrics while the context is open; yield the URL of the pages.

    listening, export: None for a worker without pages, or without a collector. Raises SetupError (`address_in_use`).
    """
    measurements = Measurements(worker, registry, database_url, project)
    sending = None if export is None else asyncio.create_task(_keep_sending(measurements, export))
    try:
        if listening is None:
            yield None
        else:
            from heliograph.status.listener import Listener  # needs h11
            from heliograph.status.pages import StatusPages

            async with Listener(listening, StatusPages(measurements).pages, lambda: datetime.now(UTC)).open() as url:
                yield url
    finally:
        if sending is not None and export is not None:
            await cancel((sending,))
            try:
                async with asyncio.timeout(LAST_SECONDS):
                    await _send(await _collect_last(measurements), export)
            except TimeoutError:
                pass
            except Exception:
                log.exception("the last metrics were not sent")
        await measurements.close()


async def _keep_sending(measurements: Measurements, export: MetricExport) -> None:
    is_failing = False
    while True:
        await asyncio.sleep(export.interval_seconds)
        try:
            await _send(await measurements.collect(), export)
            is_failing = False
        except Exception:
            if not is_failing:  # one line for each series of failures
                log.exception("metrics were not sent; the next ones follow in %g s", export.interval_seconds)
            is_failing = True


async def _collect_last(measurements: Measurements) -> list[Family]:
    """Collect all metrics, or those of the worker alone if the database does not answer in time."""
    with suppress(TimeoutError):
        async with asyncio.timeout(LAST_MEASURE_SECONDS):
            return await measurements.collect()
    return measurements.collect_worker()


async def _send(families: list[Family], export: MetricExport) -> None:
    """Send the metrics from a thread of its own, for which neither the worker nor the end of the process waits. Raises the errors of `send`."""
    loop = asyncio.get_running_loop()
    is_sent: asyncio.Future[None] = loop.create_future()

    def end(error: Exception | None) -> None:
        if is_sent.done():
            return
        if error is None:
            is_sent.set_result(None)
        else:
            is_sent.set_exception(error)

    def send() -> None:
        failure: Exception | None = None
        try:
            export.send(families)
        except Exception as error:
            failure = error
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(end, failure)

    threading.Thread(target=send, name="heliograph metrics", daemon=True).start()
    await is_sent
