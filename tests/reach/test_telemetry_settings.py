"""The settings of telemetry: what switches it on, and what it rejects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from heliograph.errors import InvalidInput
from heliograph.telemetry.settings import TelemetrySettings, read_telemetry, signal_endpoint

COLLECTOR = "http://collector:4318"


@pytest.mark.parametrize(
    ("environment", "is_on"),
    [
        ({}, False), ({"HELIOGRAPH_OTEL": "1"}, True), ({"HELIOGRAPH_OTEL": "true"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": COLLECTOR}, True), ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{COLLECTOR}/v1/traces"}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True), ({"OTEL_TRACES_EXPORTER": "none"}, False), ({"OTEL_SERVICE_NAME": "shop"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": COLLECTOR, "HELIOGRAPH_OTEL": "0"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": COLLECTOR, "OTEL_SDK_DISABLED": "true"}, False),
    ],
)  # fmt: skip
def test_one_variable_or_a_standard_one_switches_telemetry_on(environment: dict[str, str], is_on: bool) -> None:
    assert read_telemetry(environment).is_on is is_on


def test_standard_variables_choose_formats_protocol_and_contents() -> None:
    found = read_telemetry({
        "HELIOGRAPH_OTEL": "1", "OTEL_PROPAGATORS": "tracecontext,baggage,b3multi,jaeger", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
        "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true", "OTEL_METRICS_EXPORTER": "none",
        "OTEL_SEMCONV_STABILITY_OPT_IN": "http,gen_ai_latest_experimental",
    })  # fmt: skip
    assert found == TelemetrySettings(
        is_on=True,
        metrics=False,
        protocol="grpc",
        propagation=("w3c", "b3multi", "jaeger"),
        captures_content=True,
        is_experimental=True,
    )


@dataclass(frozen=True)
class Export:
    endpoint: str


@dataclass(frozen=True)
class Tracing:
    enabled: bool = True
    propagation: str = "b3"
    sample_rate: float = 0.1
    export: Export | None = None


@pytest.mark.proves("OBS-05", "OBS-06", "OBS-07", "OBS-08")
def test_runtime_specification_applies_where_no_variable_is_set() -> None:
    found = read_telemetry({}, Tracing(export=Export(COLLECTOR)))
    assert found == TelemetrySettings(is_on=True, propagation=("b3",), sample_rate=0.1, endpoint=COLLECTOR)
    assert not read_telemetry({}, Tracing(enabled=False)).is_on
    assert not read_telemetry({"HELIOGRAPH_OTEL": "0"}, Tracing()).is_on
    overridden = {
        "OTEL_PROPAGATORS": "jaeger",
        "OTEL_TRACES_SAMPLER": "always_on",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://other:4318",
    }
    assert read_telemetry(overridden, Tracing(export=Export(COLLECTOR))) == TelemetrySettings(
        is_on=True, propagation=("jaeger",)
    )


@pytest.mark.proves("OBS-08")
def test_endpoint_over_http_gets_the_path_of_its_signal() -> None:
    def of(endpoint: str | None, **options: Any) -> list[str | None]:
        settings = TelemetrySettings(endpoint=endpoint, **options)
        return [signal_endpoint(settings, "traces"), signal_endpoint(settings, "metrics")]

    assert of(COLLECTOR) == [f"{COLLECTOR}/v1/traces", f"{COLLECTOR}/v1/metrics"]
    assert of(f"{COLLECTOR}/v1/traces") == of(f"{COLLECTOR}/v1/metrics") == of(f"{COLLECTOR}/") == of(COLLECTOR)
    assert of(f"{COLLECTOR}/own/v1/traces/") == [f"{COLLECTOR}/own/v1/traces", f"{COLLECTOR}/own/v1/metrics"]
    assert of(f"{COLLECTOR}/own") == [f"{COLLECTOR}/own"] * 2
    assert of("http://collector:4317", protocol="grpc") == ["http://collector:4317"] * 2
    assert of(None) == [None, None]


@pytest.mark.proves("G-28")
@pytest.mark.parametrize(
    "endpoint", ["http://jaeger:14268/api/traces", "http://jaeger:14268", "http://jaeger/api/traces/"]
)
def test_endpoint_of_jaegers_thrift_collector_is_rejected_and_the_message_names_the_one_for_otlp(endpoint: str) -> None:
    reads: list[Callable[[], TelemetrySettings]] = [
        lambda: TelemetrySettings(endpoint=endpoint),
        lambda: read_telemetry({"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}),
        lambda: read_telemetry({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": endpoint}),
    ]
    for read in reads:
        with pytest.raises(InvalidInput, match=r"http://jaeger:4318 \(HTTP\) and http://jaeger:4317 \(gRPC\)"):
            read()


@pytest.mark.parametrize(
    "environment",
    [
        {"HELIOGRAPH_OTEL": "maybe"}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4318"}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://[x"},
        {"HELIOGRAPH_OTEL": "1", "OTEL_PROPAGATORS": "w4c"}, {"HELIOGRAPH_OTEL": "1", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"},
    ],
)  # fmt: skip
def test_invalid_settings_are_rejected_with_the_name_of_their_variable(environment: dict[str, str]) -> None:
    with pytest.raises(InvalidInput, match=list(environment)[-1]):
        read_telemetry(environment)


def test_rate_outside_its_range_is_rejected() -> None:
    for rate in (-0.1, 1.1):
        with pytest.raises(InvalidInput, match="from 0 to 1"):
            TelemetrySettings(sample_rate=rate)


def test_traces_and_metrics_may_have_different_protocols() -> None:
    both = read_telemetry(
        {
            "HELIOGRAPH_OTEL": "1",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
            "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "http/protobuf",
        }
    )
    assert [both.protocol_of("traces"), both.protocol_of("metrics")] == ["grpc", "http/protobuf"]
    one = read_telemetry({"HELIOGRAPH_OTEL": "1", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})
    assert [one.protocol_of("traces"), one.protocol_of("metrics")] == ["grpc", "grpc"]
    with pytest.raises(InvalidInput, match="OTEL_EXPORTER_OTLP_METRICS_PROTOCOL"):
        read_telemetry({"HELIOGRAPH_OTEL": "1", "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "http/json"})


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        ({"OTEL_TRACES_EXPORTER": "console"}, "OTEL_TRACES_EXPORTER=console"),
        ({"OTEL_METRICS_EXPORTER": "otlp,prometheus"}, "/metrics of `helio worker --listen`"),
        ({"OTEL_LOGS_EXPORTER": "otlp"}, "OTEL_LOGS_EXPORTER=otlp"),
        ({"OTEL_CONFIG_FILE": "otel.yaml"}, "OTEL_CONFIG_FILE"),
        ({"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "EVENT_ONLY"}, "no events"),
        ({"OTEL_SDK_DISABLED": "true"}, "OTEL_SDK_DISABLED"),
    ],
)  # fmt: skip
def test_variable_without_effect_has_one_warning(environment: dict[str, str], named: str) -> None:
    [warning] = read_telemetry({"HELIOGRAPH_OTEL": "1", **environment}).warnings
    assert named in warning
    assert read_telemetry({"HELIOGRAPH_OTEL": "0", **environment}).warnings == ()


def test_exporters_and_contents_follow_the_standard_values() -> None:
    found = read_telemetry(
        {"HELIOGRAPH_OTEL": "1", "OTEL_TRACES_EXPORTER": "console", "OTEL_METRICS_EXPORTER": "otlp,prometheus"}
    )
    assert (found.traces, found.metrics) == (False, True)
    modes = {
        "NO_CONTENT": False,
        "span_only": True,
        "EVENT_ONLY": False,
        "SPAN_AND_EVENT": True,
        "true": True,
        "0": False,
        "": False,
    }
    for mode, captures in modes.items():
        settings = read_telemetry({"HELIOGRAPH_OTEL": "1", "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": mode})
        assert settings.captures_content is captures
    with pytest.raises(InvalidInput, match="CAPTURE_MESSAGE_CONTENT"):
        read_telemetry({"HELIOGRAPH_OTEL": "1", "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "some"})
