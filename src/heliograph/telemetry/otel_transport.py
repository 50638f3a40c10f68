"""Create the exporters of OTLP, over HTTP or gRPC, with the endpoint and the timeout of the settings."""

from __future__ import annotations

import os
import weakref
from functools import partial
from typing import Any

from heliograph.errors import SetupError
from heliograph.telemetry.settings import Signal, TelemetrySettings, signal_endpoint

_TIMEOUT_SECONDS = 10.0

_inherited: list[Any] = []  # the connections of the process that has forked this one


def open_exporter(settings: TelemetrySettings, signal: Signal) -> Any:
    """Return the exporter of a signal. Raises SetupError (`no_otel_library`) without the library for its protocol."""
    options: dict[str, Any] = {"timeout": None if _has_timeout(signal) else _TIMEOUT_SECONDS}
    endpoint = signal_endpoint(settings, signal)
    if settings.protocol_of(signal) == "grpc":
        return _grpc_exporters()[signal](endpoint, **options)
    has_own = any(name.endswith("_CREDENTIAL_PROVIDER") for name in os.environ)  # the exporter then makes its session
    if not has_own:
        options["session"] = _http_session()
    return _http_exporters()[signal](endpoint, **options)


def _http_exporters() -> dict[Signal, Any]:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

    from heliograph.telemetry.otel_http_spans import HttpSpanExporter

    return {"traces": HttpSpanExporter, "metrics": OTLPMetricExporter}


def _grpc_exporters() -> dict[Signal, Any]:
    try:
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter

        from heliograph.telemetry.otel_grpc_spans import GrpcSpanExporter
    except ImportError as error:
        raise SetupError("OTLP over gRPC needs its exporter: pip install 'heliograph[otel,otel-grpc]'",
                         code="no_otel_library") from error  # fmt: skip
    return {"traces": GrpcSpanExporter, "metrics": OTLPMetricExporter}


def _http_session() -> Any:
    """Return a session in which a redirect is an error. The exporter follows none, and would take it for a success."""
    import requests

    def check(response: Any, **_: Any) -> None:
        if 300 <= response.status_code < 400:
            response.close()
            raise requests.RequestException(f"the collector redirects with {response.status_code}")

    session = requests.Session()
    session.hooks["response"].append(check)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=partial(_forget_connections, weakref.ref(session)))
    return session


def _forget_connections(session: weakref.ref[Any]) -> None:
    """Give a session new connections in a forked process, because two processes on one connection mix their requests."""
    from requests.adapters import HTTPAdapter

    if (kept := session()) is None:
        return
    _inherited.append(
        list(kept.adapters.values())
    )  # not freed: that would wait for locks of threads that this process lacks
    for prefix in list(kept.adapters):
        kept.mount(prefix, HTTPAdapter())


def _has_timeout(signal: Signal) -> bool:
    names = "OTEL_EXPORTER_OTLP_TIMEOUT", f"OTEL_EXPORTER_OTLP_{signal.upper()}_TIMEOUT"
    return any(name in os.environ for name in names)
