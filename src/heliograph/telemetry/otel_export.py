"""Export spans over OTLP, from a thread of its own. Neither a turn nor the end of a process waits for the collector."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cache

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import ProxyTracerProvider

from heliograph.redaction import redacted
from heliograph.telemetry.otel_outage import ExportOutage, keep_quiet, notice_full_queue
from heliograph.telemetry.otel_redaction import without_secrets
from heliograph.telemetry.otel_sampling import Sampling
from heliograph.telemetry.otel_spans import PlannedIds, Spans
from heliograph.telemetry.otel_tracer import OtelTracer
from heliograph.telemetry.otel_transport import open_exporter
from heliograph.telemetry.settings import TelemetrySettings

FLUSH_SECONDS = 2.0
_FLUSH_SECONDS_IN_OUTAGE = 0.2
_DELAY_MS = 1_000  # a killed worker loses the spans of at most this time


class SpanExport:
    """The exporter of one process for one configuration. It is kept until the process ends."""

    def __init__(self, settings: TelemetrySettings):
        self._settings = settings
        self._ids = PlannedIds()
        self.outage = ExportOutage(settings.endpoint)
        sampler = None if settings.sample_rate is None else ParentBased(TraceIdRatioBased(settings.sample_rate))
        self._provider = TracerProvider(sampler, resource(), shutdown_on_exit=False, id_generator=self._ids)
        self._sampling = Sampling(self._provider.sampler)
        keep_quiet()
        delay = None if "OTEL_BSP_SCHEDULE_DELAY" in os.environ else _DELAY_MS
        self._processor = _Batches(_Reported(open_exporter(settings, "traces"), self.outage), self.outage, delay)
        self._provider.add_span_processor(self._processor)
        self._spans = Spans(self._provider, self._ids, self._processor.on_end)

    def serve_libraries(self) -> None:
        """Record the spans of instrumented libraries too, unless the application has a provider of its own."""
        if isinstance(trace.get_tracer_provider(), ProxyTracerProvider):
            trace.set_tracer_provider(self._provider)

    def tracer(self, now: Callable[[], datetime]) -> OtelTracer:
        return OtelTracer(self._settings, self._spans, self._sampling, now)

    async def flush(self) -> None:
        """Export what is recorded, for a short time. A collector that does not answer costs the rest of the spans."""
        loop = asyncio.get_running_loop()
        done = asyncio.Event()

        def run() -> None:
            self._processor.force_flush()
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(done.set)

        threading.Thread(target=run, name="heliograph telemetry flush", daemon=True).start()
        seconds = _FLUSH_SECONDS_IN_OUTAGE if self.outage.is_rejecting else FLUSH_SECONDS
        try:
            async with asyncio.timeout(seconds):
                await done.wait()
        except TimeoutError:
            self.outage.failed(0, f"the last spans within {seconds:g} s")


def span_export(settings: TelemetrySettings) -> SpanExport:
    """Return the exporter of this process for these settings. Raises SetupError (`no_otel_library`)."""
    standard = sorted((name, value) for name, value in os.environ.items() if name.startswith("OTEL_"))
    return _span_export(settings, tuple(standard))


@cache
def _span_export(settings: TelemetrySettings, _standard: tuple[tuple[str, str], ...]) -> SpanExport:
    export = SpanExport(settings)
    export.serve_libraries()
    return export


def resource() -> Resource:
    """Describe this process: as the standard variables do, and otherwise by the service name `heliograph`."""
    is_named = "OTEL_SERVICE_NAME" in os.environ or "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    found = Resource.create({} if is_named else {"service.name": "heliograph"})
    return Resource(redacted(dict(found.attributes)), found.schema_url)


class _Batches(BatchSpanProcessor):
    """Batches of spans. A full queue is an outage, reported once."""

    def __init__(self, exporter: SpanExporter, outage: ExportOutage, delay_ms: float | None):
        super().__init__(exporter, schedule_delay_millis=delay_ms)
        self._outage = outage

    def on_end(self, span: ReadableSpan) -> None:
        notice_full_queue(self._outage)
        try:
            super().on_end(span)
        finally:
            notice_full_queue(None)


class _Reported(SpanExporter):
    """An exporter whose failures `ExportOutage` reports."""

    def __init__(self, exporter: SpanExporter, outage: ExportOutage):
        self._exporter = exporter
        self._outage = outage

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        with self._outage.reported():
            try:
                result = self._exporter.export(without_secrets(spans))
            except Exception:  # of the transport; the SDK would log one stack for each batch
                result = SpanExportResult.FAILURE
        if result is SpanExportResult.SUCCESS:
            self._outage.succeeded()
        else:
            self._outage.failed(len(spans), "spans")
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)
