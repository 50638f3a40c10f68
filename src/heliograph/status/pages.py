"""The pages of a worker's listener: whether it is alive and ready, and its metrics."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from heliograph.policy.listening import METRICS
from heliograph.status.listener import Page, Response
from heliograph.status.measurements import Measurements
from heliograph.status.shared import Shared
from heliograph.telemetry.metrics_text import CONTENT_TYPE, text_of

TEXT_SECONDS = 1.0  # how long the text of the metrics counts


class StatusPages:
    """The pages of one worker."""

    def __init__(self, measurements: Measurements):
        self._measurements = measurements
        self._text = Shared(self._write, TEXT_SECONDS)

    @property
    def pages(self) -> dict[str, Page]:
        return {"/live": Page(self.live), "/ready": Page(self.ready), "/metrics": Page(self.metrics, METRICS)}

    async def live(self) -> Response:
        """The event loop of the worker runs, because it sends this response."""
        return Response(HTTPStatus.OK, "live\n")

    async def ready(self) -> Response:
        """The worker claims turns, and its database is reachable and has the schema of this version."""
        is_claiming = self._measurements.worker.is_claiming
        problem = await self._measurements.database_problem() if is_claiming else "the worker does not claim turns"
        if not problem:
            return Response(HTTPStatus.OK, "ready\n")
        return Response(HTTPStatus.SERVICE_UNAVAILABLE, f"not ready: {problem}\n")

    async def metrics(self) -> Response:
        """All metrics as text."""
        return Response(HTTPStatus.OK, await self._text.get(), CONTENT_TYPE)

    async def _write(self) -> str:
        """Write the text in a thread, because long texts take milliseconds."""
        return await asyncio.to_thread(text_of, await self._measurements.collect())
