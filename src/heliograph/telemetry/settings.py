"""The settings of telemetry, read from the environment: one variable of our own, and the standard ones of OpenTelemetry."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit

from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput

Transport = Literal["http/protobuf", "grpc"]
Signal = Literal["traces", "metrics"]

# The names of OTEL_PROPAGATORS, and ours. `baggage` and `none` are accepted, and add no format.
_PROPAGATORS = {"tracecontext": "w3c", "w3c": "w3c", "b3": "b3", "b3multi": "b3multi", "jaeger": "jaeger"}
_WITHOUT_FORMAT = ("baggage", "none")
_PROTOCOLS: tuple[Transport, ...] = ("http/protobuf", "grpc")
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
_ENDPOINTS = tuple(f"OTEL_EXPORTER_OTLP_{part}ENDPOINT" for part in ("", "TRACES_", "METRICS_"))
_THRIFT_PORT, _THRIFT_PATH = 14268, "/api/traces"
_LATEST = "gen_ai_latest_experimental"
_PROTOCOL_NAMES = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL")
_PATHS = ("/v1/traces", "/v1/metrics")
_CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_CONTENT_MODES = {"NO_CONTENT": False, "SPAN_ONLY": True, "EVENT_ONLY": False, "SPAN_AND_EVENT": True}
_CONFLICT = "OTEL_SDK_DISABLED=true switches telemetry off, although HELIOGRAPH_OTEL switches it on"
_ELSEWHERE = {"prometheus": "; Prometheus reads /metrics of `helio worker --listen`"}
_WITHOUT_EFFECT = (
    "OTEL_CONFIG_FILE", "OTEL_METRIC_EXPORT_TIMEOUT", "OTEL_METRICS_EXEMPLAR_FILTER",
    "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TelemetrySettings:
    """The settings of telemetry. All others have no effect unless `is_on`.

    traces, metrics: which of them are exported. endpoint: the OTLP endpoint of the collector; None leaves it to the standard variables.
    propagation: the formats of outgoing headers: w3c, b3, b3multi, jaeger. Incoming ones are read in all formats.
    sample_rate: the share of the traces that are recorded; None leaves it to OTEL_TRACES_SAMPLER, which records all by default.
    captures_content: spans contain prompts, replies, arguments and results, without known secrets.
    is_experimental: spans also have the names that the conventions for GenAI may still change.
    protocol, metrics_protocol: of traces, and of metrics; None for that of traces. warnings: about variables without effect.
    """

    is_on: bool = False
    traces: bool = True
    metrics: bool = True
    endpoint: str | None = None
    protocol: Transport = "http/protobuf"
    propagation: tuple[str, ...] = ("w3c",)
    sample_rate: float | None = None
    captures_content: bool = False
    is_experimental: bool = False
    metrics_protocol: Transport | None = None
    warnings: tuple[str, ...] = ()

    def protocol_of(self, signal: Signal) -> Transport:
        """Return the protocol over which a signal is exported."""
        return self.protocol if signal == "traces" else self.metrics_protocol or self.protocol

    def __post_init__(self) -> None:
        if self.endpoint is not None:
            check_endpoint(self.endpoint)
        if self.sample_rate is not None and not 0 <= self.sample_rate <= 1:
            raise InvalidInput(f"the sample rate of traces must be from 0 to 1, not {safe_repr(self.sample_rate)}", code="out_of_range",
                               path="/observability/tracing/sample_rate")  # fmt: skip


class TraceExport(Protocol):
    """Where traces are exported, as a runtime specification names it."""

    @property
    def endpoint(self) -> str: ...


class Tracing(Protocol):
    """The map `observability.tracing` of a runtime specification."""

    @property
    def enabled(self) -> bool: ...

    @property
    def propagation(self) -> str: ...

    @property
    def sample_rate(self) -> float: ...

    @property
    def export(self) -> TraceExport | None: ...


def read_telemetry(environment: Mapping[str, str], tracing: Tracing | None = None) -> TelemetrySettings:
    """Read the settings from an environment. HELIOGRAPH_OTEL switches telemetry on or off, and so do the standard variables.

    tracing: of the runtime specification of the application. It switches traces on, too, and applies where no variable is set.
    Raises InvalidInput, with the variable and its accepted values.
    """

    def get(name: str) -> str:
        return environment.get(name, "").strip()

    given = {name: get(name) for name in _ENDPOINTS if get(name)}
    exporters = {kind: _exporters(get(f"OTEL_{kind}_EXPORTER")) for kind in ("TRACES", "METRICS")}
    is_named = (
        bool(given)
        or any(exporter != "none" for named in exporters.values() for exporter in named)
        or (tracing is not None and tracing.enabled)
    )
    is_on = _flag(get("HELIOGRAPH_OTEL"), "HELIOGRAPH_OTEL", default=is_named)
    if _flag(get("OTEL_SDK_DISABLED"), "OTEL_SDK_DISABLED", default=False):  # the SDK itself obeys it
        return TelemetrySettings(warnings=(_CONFLICT,) if is_on and get("HELIOGRAPH_OTEL") else ())
    if not is_on:
        return TelemetrySettings()
    for name, url in given.items():
        check_endpoint(url, name)
    own = {} if tracing is None or not tracing.enabled else _of_specification(tracing, get)
    common, captures, experimental = "OTEL_EXPORTER_OTLP_PROTOCOL", get(_CAPTURE), get("OTEL_SEMCONV_STABILITY_OPT_IN")
    protocols = [_protocol(name if get(name) else common, get(name) or get(common)) for name in _PROTOCOL_NAMES]
    return TelemetrySettings(
        **{"propagation": _propagation(get("OTEL_PROPAGATORS")), **own},
        is_on=True, traces=_is_exported(exporters["TRACES"]), metrics=_is_exported(exporters["METRICS"]),
        protocol=protocols[0], metrics_protocol=None if protocols[0] == protocols[1] else protocols[1],
        captures_content=_captures(captures), is_experimental=_LATEST in experimental.replace(" ", "").split(","),
        warnings=_warnings(get, exporters, captures),
    )  # fmt: skip


def check_endpoint(url: str, name: str = "the endpoint of telemetry") -> None:
    """Check the endpoint of a collector. Raises InvalidInput (`invalid_url`), also for Jaeger's collector of Thrift (G-28)."""
    try:
        parts = urlsplit(url)
        port, host, is_http = parts.port, parts.hostname, parts.scheme in ("http", "https")
    except ValueError:
        port, host, is_http, parts = None, None, False, urlsplit("")
    if not (host and is_http):
        raise InvalidInput(
            f"{name} must be a URL such as http://collector:4318, not {safe_repr(url)}", code="invalid_url"
        )
    if port == _THRIFT_PORT or parts.path.rstrip("/") == _THRIFT_PATH:
        raise InvalidInput(f"{name} {safe_repr(url)} is Jaeger's endpoint for Thrift, and Heliograph exports OTLP only; Jaeger accepts OTLP "
                           f"at http://{host}:4318 (HTTP) and http://{host}:4317 (gRPC)", code="invalid_url")  # fmt: skip


def signal_endpoint(settings: TelemetrySettings, signal: Signal) -> str | None:
    """Return the endpoint for one signal: over HTTP with its path. None leaves it to the standard variables."""
    if settings.endpoint is None or settings.protocol_of(signal) == "grpc":
        return settings.endpoint
    base = settings.endpoint.rstrip("/")
    for path in _PATHS:
        base = base.removesuffix(path)
    is_base = base != settings.endpoint.rstrip("/") or urlsplit(base).path == ""
    return f"{base}/v1/{signal}" if is_base else settings.endpoint


def _of_specification(tracing: Tracing, get: Callable[[str], str]) -> dict[str, Any]:
    """The settings of a runtime specification that no variable overrides."""
    found: dict[str, Any] = {}
    if not get("OTEL_PROPAGATORS"):
        found["propagation"] = (tracing.propagation,)
    if not get("OTEL_TRACES_SAMPLER"):
        found["sample_rate"] = tracing.sample_rate
    if tracing.export is not None and not any(map(get, _ENDPOINTS)):
        found["endpoint"] = tracing.export.endpoint
    return found


def _flag(text: str, name: str, *, default: bool) -> bool:
    if not text:
        return default
    if text.lower() not in _TRUE + _FALSE:
        raise InvalidInput(f"{name} must be 1 or 0, not {safe_repr(text)}", code="out_of_range")
    return text.lower() in _TRUE


def _exporters(text: str) -> list[str]:
    return [name.strip().lower() for name in text.split(",") if name.strip()]


def _is_exported(exporters: Sequence[str]) -> bool:
    return not exporters or "otlp" in exporters


def _captures(text: str) -> bool:
    if text.upper() in _CONTENT_MODES:
        return _CONTENT_MODES[text.upper()]
    return _flag(text, _CAPTURE, default=False)


def _warnings(get: Callable[[str], str], exporters: Mapping[str, Sequence[str]], captures: str) -> tuple[str, ...]:
    """Name the variables that are set and have no effect, or less than their standard describes."""
    found = [
        f"OTEL_{kind}_EXPORTER={exporter} has no effect: Heliograph exports {kind.lower()} over otlp only{_ELSEWHERE.get(exporter, '')}"
        for kind, named in exporters.items() for exporter in named if exporter not in ("otlp", "none")
    ]  # fmt: skip
    if captures.upper() in ("EVENT_ONLY", "SPAN_AND_EVENT"):
        found.append(f"{_CAPTURE}={captures}: Heliograph records contents in spans, and no events")
    if (logs := get("OTEL_LOGS_EXPORTER").lower()) not in ("", "none"):
        found.append(f"OTEL_LOGS_EXPORTER={logs} has no effect: Heliograph writes its log to stderr")
    found += [f"{name} has no effect in Heliograph" for name in _WITHOUT_EFFECT if get(name)]
    return tuple(found)


def _protocol(name: str, text: str) -> Transport:
    found = next((each for each in _PROTOCOLS if each == (text or _PROTOCOLS[0])), None)
    if found is None:
        raise InvalidInput(f"{name} must be {' or '.join(_PROTOCOLS)}, not {safe_repr(text)}", code="out_of_range")
    return found


def _propagation(text: str) -> tuple[str, ...]:
    names = [name.strip().lower() for name in text.split(",") if name.strip()] or ["tracecontext"]
    if unknown := [name for name in names if name not in _PROPAGATORS and name not in _WITHOUT_FORMAT]:
        raise InvalidInput(
            f"OTEL_PROPAGATORS may have {', '.join(_PROPAGATORS)}, not {safe_repr(unknown[0])}", code="out_of_range"
        )
    return tuple(dict.fromkeys(_PROPAGATORS[name] for name in names if name in _PROPAGATORS))
