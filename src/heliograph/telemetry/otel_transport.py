"""Create the exporters of OTLP, over HTTP or gRPC, with the endpoint and the timeout of the settings."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from heliograph.errors import SetupError
from heliograph.telemetry.settings import Signal, TelemetrySettings, signal_endpoint

_TIMEOUT_SECONDS = 10.0
_MODULES = {"traces": "trace_exporter", "metrics": "metric_exporter"}
_CLASSES = {"traces": "OTLPSpanExporter", "metrics": "OTLPMetricExporter"}


def open_exporter(settings: TelemetrySettings, signal: Signal) -> Any:
    """Return the exporter of a signal. Raises SetupError (`no_otel_library`) without the library for its protocol."""
    transport = "grpc" if settings.protocol_of(signal) == "grpc" else "http"
    try:
        module = import_module(f"opentelemetry.exporter.otlp.proto.{transport}.{_MODULES[signal]}")
    except ImportError as error:
        if transport == "http":
            raise
        raise SetupError("OTLP over gRPC needs its exporter: pip install 'heliograph[otel,otel-grpc]'",
                         code="no_otel_library") from error  # fmt: skip
    timeout = None if _has_timeout(signal) else _TIMEOUT_SECONDS
    return getattr(module, _CLASSES[signal])(signal_endpoint(settings, signal), timeout=timeout)


def _has_timeout(signal: Signal) -> bool:
    return any(f"OTEL_EXPORTER_OTLP_{part}TIMEOUT" in os.environ for part in ("", f"{signal.upper()}_"))
