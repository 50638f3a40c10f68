"""Heliograph's encoder of finished spans gives the messages that OpenTelemetry's encoder gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as Message
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags

from heliograph.telemetry import otel_grpc_spans, otel_http_spans
from heliograph.telemetry.otel_encoding import encode
from heliograph.telemetry.otel_recorded_span import RecordedSpan
from heliograph.telemetry.otel_transport import open_exporter
from heliograph.telemetry.settings import TelemetrySettings, Transport
from tests.grids import share_of_examples
from tests.reach.otlp_receiver import receiving_grpc, receiving_http

RESOURCE, SCOPE = Resource({"service.name": "heliograph"}), InstrumentationScope("heliograph")
TRACE_IDS, SPAN_IDS = st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1)
TIMES = st.integers(0, 2**63)
CONTEXTS = st.builds(
    SpanContext, TRACE_IDS, SPAN_IDS, is_remote=st.booleans(), trace_flags=st.sampled_from([TraceFlags(0), TraceFlags(1)])
)  # fmt: skip
TEXTS = st.text(st.characters(codec="utf-8"), max_size=80)
VALUES = st.one_of(TEXTS, st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False))
RECORDED = st.builds(
    RecordedSpan, TEXTS, TRACE_IDS, SPAN_IDS, st.none() | SPAN_IDS | CONTEXTS, st.lists(SPAN_IDS | CONTEXTS, max_size=3),
    kind=st.sampled_from(SpanKind), attributes=st.dictionaries(TEXTS, VALUES, max_size=6), error=st.none() | TEXTS, start=TIMES, end=TIMES,
    resource=st.just(RESOURCE), scope=st.just(SCOPE),
)  # fmt: skip


def recorded(**attributes: Any) -> RecordedSpan:
    return RecordedSpan("turn", 1, 2, None, kind=SpanKind.INTERNAL, attributes=attributes, error=None, start=3, end=4,
                        resource=RESOURCE, scope=SCOPE)  # fmt: skip


def of_library() -> ReadableSpan:
    span = TracerProvider(resource=RESOURCE, shutdown_on_exit=False).get_tracer("library").start_span("query")
    span.add_event("began", {"rows": [1, 2]})
    span.end()
    assert isinstance(span, ReadableSpan)
    return span


@pytest.mark.proves("OBS-08")
@share_of_examples(50)
@given(st.lists(RECORDED, max_size=3))
def test_finished_spans_are_encoded_as_by_opentelemetry(spans: list[RecordedSpan]) -> None:
    assert encode(spans) == encode_spans(spans)


def test_spans_of_libraries_are_in_the_same_request() -> None:
    library = of_library()
    spans = [library, recorded(n=1), recorded(n=2)]
    groups = encode(spans).resource_spans[0].scope_spans
    assert [(group.scope.name, len(group.spans)) for group in groups] == [("heliograph", 2), ("library", 1)]
    assert list(groups[1].spans) == list(encode([library]).resource_spans[0].scope_spans[0].spans)
    assert groups[1].spans[0].events[0].attributes[0].key == "rows"


def test_values_that_compare_equal_keep_their_types() -> None:
    kinds = [
        span.attributes[0].value.WhichOneof("value")
        for span in encode([recorded(v=value) for value in ("x", 1, True, 1.0)]).resource_spans[0].scope_spans[0].spans
    ]
    assert kinds == ["string_value", "int_value", "bool_value", "double_value"]


@pytest.mark.parametrize("value", [["a"], 2**64, "\ud800", None])
def test_value_that_the_protocol_lacks_costs_no_other_span(value: Any, caplog: pytest.LogCaptureFixture) -> None:
    spans = [recorded(n=0), recorded(bad=value, n=1), recorded(n=2)]
    found: list[Message] = list(encode(spans).resource_spans[0].scope_spans[0].spans)
    assert [each.attributes[-1].value.int_value for each in found] == [0, 1, 2]


@pytest.mark.parametrize(("protocol", "receiving", "exporters"), [
    ("http/protobuf", receiving_http, otel_http_spans), ("grpc", receiving_grpc, otel_grpc_spans),
])  # fmt: skip
def test_both_exporters_have_this_encoder(
    monkeypatch: pytest.MonkeyPatch, protocol: Transport, receiving: Any, exporters: Any
) -> None:
    encoded = list[str]()

    def noting(spans: Sequence[ReadableSpan]) -> ExportTraceServiceRequest:
        encoded.extend(span.name for span in spans)
        return encode(spans)

    monkeypatch.setattr(exporters, "encode", noting)
    with receiving() as receiver:
        exporter = open_exporter(TelemetrySettings(is_on=True, endpoint=receiver.endpoint, protocol=protocol), "traces")
        assert exporter.export([recorded(n=1), of_library()]) is SpanExportResult.SUCCESS
        exporter.shutdown()
    assert sorted(span.name for span in receiver.spans) == sorted(encoded) == ["query", "turn"]


def test_exporter_over_http_without_the_client_of_this_version_has_its_own_encoder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exporter = open_exporter(TelemetrySettings(is_on=True, endpoint="http://127.0.0.1:9"), "traces")
    monkeypatch.delattr(exporter, "_client")
    monkeypatch.setattr(OTLPSpanExporter, "export", lambda _, spans: len(spans))
    assert exporter.export([recorded(n=1), recorded(n=2)]) == 2


def test_spans_of_two_tracers_keep_their_resources_and_scopes() -> None:
    other = RecordedSpan("turn", 1, 9, None, kind=SpanKind.INTERNAL, attributes={}, error=None, start=3, end=4,
                         resource=Resource({"service.name": "other"}, "https://example.org/schema"),
                         scope=InstrumentationScope("other", "1", "https://example.org/scope"))  # fmt: skip
    spans = [recorded(n=1), other, recorded(n=2)]
    assert encode(spans) == encode_spans(spans)
