"""The map `observability` of a runtime specification: which metrics are published, and how traces are sampled and exported."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

import pydantic

from heliograph.control.field_types import Flag, Text, Texts, read_text
from heliograph.control.model_errors import nearest, problem
from heliograph.control.wire_model import WireModel, read_model
from heliograph.error_text import repr_of, safe_repr

# The metrics of the specification: their types, and the labels that they may have. Ids are never labels.
METRICS: dict[str, tuple[str, tuple[str, ...]]] = {
    "signal_latency_ms": ("histogram", ("signal_type", "status")),
    "signal_count": ("counter", ("signal_type", "status")),
    "signal_errors": ("counter", ("signal_type", "error_code")),
}
_THRIFT_PORT = 14268
_THRIFT_PATH = "/api/traces"
_OTLP_PORT = 4318


def _read_rate(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise problem("wrong_type", f"must be a number, not {safe_repr(repr_of(value))}")
    if not 0 <= value <= 1:
        raise problem(
            "out_of_range", f"must be from 0 to 1, not {safe_repr(repr_of(value))}; write 0.1 for a tenth of the traces"
        )
    return float(value)


def _read_endpoint(value: Any) -> str:
    text = read_text(value)
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not host:
        raise problem("invalid_url", f"must be the URL of an OTLP collector, not {safe_repr(text)}; write http://localhost:{_OTLP_PORT}, "
                      "for example")  # fmt: skip
    if parts.username or parts.password:
        raise problem("url_not_allowed", "must have no user and password; set OTEL_EXPORTER_OTLP_HEADERS instead")
    if port == _THRIFT_PORT or parts.path.rstrip("/") == _THRIFT_PATH:
        raise problem("jaeger_thrift_endpoint", "is a Thrift endpoint of Jaeger, and Heliograph exports OTLP only, which Jaeger receives at "
                      f"another port; write {parts.scheme}://{host}:{_OTLP_PORT}/v1/traces")  # fmt: skip
    return text


class MetricDeclaration(WireModel):
    """A metric that is published. labels: those of its labels that are published."""

    described = "a metric"
    name: Text
    type: Literal["histogram", "counter"]
    labels: Texts = ()

    @pydantic.model_validator(mode="after")
    def _check_known(self) -> Self:
        if self.name not in METRICS:
            raise problem("unknown_metric", f"is {safe_repr(self.name)}, but the metrics are {', '.join(METRICS)}"
                          f"{nearest(self.name, METRICS) or '; write one of these'}", "/name")  # fmt: skip
        kind, labels = METRICS[self.name]
        if self.type != kind:
            raise problem("wrong_metric_type", f"is a {kind}, not a {self.type}; write type: {kind}", "/type")
        for n, label in enumerate(self.labels):
            if label not in labels:
                raise problem("unknown_label", f"has the label {safe_repr(label)}, but its labels are {', '.join(labels)}"
                              f"{nearest(label, labels) or '; remove it'}", f"/labels/{n}")  # fmt: skip
        return self


class SignalMetrics(WireModel):
    described = "the signals of observability"
    metrics: tuple[MetricDeclaration, ...] = ()


class TraceExport(WireModel):
    """Where traces go. endpoint: the URL of an OTLP collector."""

    described = "the export of traces"
    endpoint: Annotated[str, pydantic.PlainValidator(_read_endpoint)]


class Tracing(WireModel):
    """The traces. propagation: the headers in which the context of a trace travels. sample_rate: the part of the traces that is kept."""

    described = "the tracing of observability"
    enabled: Flag = False
    propagation: Literal["w3c", "b3", "jaeger"] = "w3c"
    sample_rate: Annotated[float, pydantic.PlainValidator(_read_rate)] = 1.0
    export: TraceExport | None = None


class Observability(WireModel):
    """The telemetry of a deployment."""

    described = "the map observability"
    signals: SignalMetrics = SignalMetrics()
    tracing: Tracing = Tracing()


def read_observability(wire: Any, path: str = "") -> Observability:
    """Read the map `observability` from parsed JSON or YAML.

    Raises InvalidInput: unknown_metric, wrong_metric_type, unknown_label, jaeger_thrift_endpoint, invalid_url, url_not_allowed, and the
    errors of `read_signal`.
    """
    return read_model(Observability, wire, path)
