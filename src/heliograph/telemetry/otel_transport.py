"""Create the exporters of OTLP, over HTTP or gRPC, with the endpoint and the timeout of the settings."""

from __future__ import annotations

import os
from typing import Any

from heliograph.errors import SetupError
from heliograph.telemetry.settings import Signal, TelemetrySettings, signal_endpoint

_TIMEOUT_SECONDS = 10.0


def open_exporter(settings: TelemetrySettings, signal: Signal) -> Any:
    """Return the exporter of a signal. Raises SetupError (`no_otel_library`) without the library for its protocol."""
    exporters = _grpc_exporters() if settings.protocol_of(signal) == "grpc" else _http_exporters()
    timeout = None if _has_timeout(signal) else _TIMEOUT_SECONDS
    return exporters[signal](signal_endpoint(settings, signal), timeout=timeout)


def _http_exporters() -> dict[Signal, Any]:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return {"traces": OTLPSpanExporter, "metrics": OTLPMetricExporter}


def _grpc_exporters() -> dict[Signal, Any]:
    try:
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
    except ImportError as error:
        raise SetupError("OTLP over gRPC needs its exporter: pip install 'heliograph[otel,otel-grpc]'",
                         code="no_otel_library") from error  # fmt: skip
    return {"traces": OTLPSpanExporter, "metrics": OTLPMetricExporter}


def _has_timeout(signal: Signal) -> bool:
    names = "OTEL_EXPORTER_OTLP_TIMEOUT", f"OTEL_EXPORTER_OTLP_{signal.upper()}_TIMEOUT"
    return any(name in os.environ for name in names)
