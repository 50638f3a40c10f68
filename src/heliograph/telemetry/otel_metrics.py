"""Export the metrics of a worker over OTLP, under the names of their specifications."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from typing import Any

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    MetricExporter,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Metric as OtelMetric
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput
from heliograph.redaction import redacted_text
from heliograph.telemetry.metrics import Family, Metric
from heliograph.telemetry.otel_export import resource
from heliograph.telemetry.otel_outage import ExportOutage, keep_quiet
from heliograph.telemetry.otel_transport import open_exporter
from heliograph.telemetry.settings import TelemetrySettings

_TIMEOUT_SECONDS = 10.0
_UNKNOWN: tuple[Any, Any] = (None, None)  # the least and the greatest value, which the protocol does not require
_INTERVAL = "OTEL_METRIC_EXPORT_INTERVAL"
_SCOPE = InstrumentationScope("heliograph")


class MetricExport:
    """Sends metrics to the collector of the settings. Raises SetupError (`no_otel_library`), InvalidInput for a wrong interval.

    interval_seconds: the time between two exports.
    """

    def __init__(self, settings: TelemetrySettings):
        self._exporter: MetricExporter = open_exporter(settings, "metrics")
        self._outage = ExportOutage(settings.endpoint)
        self._resource = resource()
        self._started = time.time_ns()
        self.interval_seconds = _interval_seconds(os.environ.get(_INTERVAL, ""))
        keep_quiet()

    def send(self, families: Iterable[Family]) -> None:
        """Send all metrics, and wait for the collector; call it in a thread. An outage is logged once."""
        data = metrics_data(families, self._resource, self._started, time.time_ns())
        with self._outage.reported():
            try:
                result = self._exporter.export(data, _TIMEOUT_SECONDS * 1000)
            except Exception:  # of the transport; the SDK would log one stack for each export
                result = MetricExportResult.FAILURE
        if result is MetricExportResult.SUCCESS:
            self._outage.succeeded()
        else:
            self._outage.failed(1, "metrics")


def metrics_data(families: Iterable[Family], of: Resource, started: int, now: int) -> MetricsData:
    """Convert metrics to the form of OpenTelemetry. started, now: in nanoseconds."""
    metrics = [
        OtelMetric(family.metric.name, family.metric.help, family.metric.unit, _data(family, started, now))
        for family in families
    ]
    return MetricsData([ResourceMetrics(of, [ScopeMetrics(_SCOPE, metrics, "")], "")])


def _interval_seconds(text: str) -> float:
    if text and not (text.isascii() and text.isdigit() and 1 <= int(text) <= 86_400_000):
        raise InvalidInput(
            f"{_INTERVAL} must be a number of milliseconds from 1 to 86400000, not {safe_repr(text)}",
            code="out_of_range",
        )
    return int(text or 60_000) / 1000


def _data(family: Family, started: int, now: int) -> Sum | Gauge | Histogram:
    metric = family.metric
    if metric.kind == "histogram":
        points = [
            HistogramDataPoint(
                _attributes(metric, values),
                started,
                now,
                sum(each.counts),
                each.total,
                each.counts,
                metric.buckets,
                *_UNKNOWN,
            )
            for values, each in family.distributions.items()
        ]
        return Histogram(points, AggregationTemporality.CUMULATIVE)
    numbers = [
        NumberDataPoint(_attributes(metric, values), started, now, value) for values, value in family.values.items()
    ]
    if metric.kind == "gauge":
        return Gauge(numbers)
    return Sum(numbers, AggregationTemporality.CUMULATIVE, is_monotonic=True)


def _attributes(metric: Metric, values: Sequence[str]) -> dict[str, str]:
    return {label: redacted_text(value) for label, value in zip(metric.labels, values, strict=True)}
