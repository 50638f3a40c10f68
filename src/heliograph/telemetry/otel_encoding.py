"""Encode spans for OTLP. Finished spans of Heliograph are encoded here, all others by OpenTelemetry's encoder, which takes ten times as long.

Both use the generated classes of the protocol. This one checks few types, caches the attributes that many spans share, and copies no
message into another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as Message
from opentelemetry.proto.trace.v1.trace_pb2 import SpanFlags, Status
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext, SpanKind

from heliograph.telemetry.otel_recorded_span import RecordedSpan

_FIELDS = {str: "string_value", bool: "bool_value", int: "int_value", float: "double_value"}
_KINDS = {kind: Message.SpanKind.Value(f"SPAN_KIND_{kind.name}") for kind in SpanKind}
_LOCAL = int(SpanFlags.SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK)
_REMOTE = int(_LOCAL | SpanFlags.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK)
_UNSET = Status()
_KEPT_MAX, _LENGTH_MAX = 2048, 64  # attributes that are kept, and the characters of their values


def encode(spans: Sequence[ReadableSpan]) -> ExportTraceServiceRequest:
    """Return the request that exports these spans, equal to that of OpenTelemetry's encoder except for the order of the spans.

    A span with a value that the protocol does not have leaves the whole batch to that encoder, which omits the value and logs it.
    """
    recorded = [span for span in spans if isinstance(span, RecordedSpan)]
    if not recorded or any(_group(span) != _group(recorded[0]) for span in recorded):
        return encode_spans(spans)
    # The first one goes through OpenTelemetry's encoder too, for the group of its resource and scope.
    request = encode_spans([recorded[0], *(span for span in spans if not isinstance(span, RecordedSpan))])
    group = request.resource_spans[0].scope_spans[0].spans
    try:
        for span in recorded[1:]:
            _add(group, span)
    except (TypeError, ValueError, KeyError):
        return encode_spans(spans)
    return request


def _group(span: RecordedSpan) -> tuple[int, int]:
    """The resource and the scope of a span; those of one tracer are the same objects."""
    return id(span.resource), id(span.instrumentation_scope)


def _add(group: Any, span: RecordedSpan) -> None:
    above = span.above
    message = group.add(
        trace_id=span.trace_id.to_bytes(16, "big"), span_id=span.number.to_bytes(8, "big"),
        parent_span_id=None if above is None else _span_id(above).to_bytes(8, "big"), flags=_flags(above),
        name=span.name, kind=_KINDS[span.kind], start_time_unix_nano=span.start_time, end_time_unix_nano=span.end_time,
        status=_UNSET if span.error is None else Status(code=Status.STATUS_CODE_ERROR, message=span.error),
    )  # fmt: skip
    message.attributes.extend([_attribute(key, value) for key, value in span.values.items()])
    for link in span.linked:
        message.links.add(
            trace_id=(link.trace_id if isinstance(link, SpanContext) else span.trace_id).to_bytes(16, "big"),
            span_id=_span_id(link).to_bytes(8, "big"), flags=_flags(link),
        )  # fmt: skip


def _span_id(span: int | SpanContext) -> int:
    return span.span_id if isinstance(span, SpanContext) else span


def _flags(other: int | SpanContext | None) -> int:
    """The flags of a span with this parent, or of this link. The id of a span is that of one that may be of another process."""
    is_local = other is None or (isinstance(other, SpanContext) and not other.is_remote)
    return _LOCAL if is_local else _REMOTE


def _attribute(key: str, value: str | int | float) -> KeyValue:
    if isinstance(value, str) and len(value) > _LENGTH_MAX:
        return KeyValue(key=key, value=AnyValue(string_value=value))
    return _kept_attribute(key, value)


@lru_cache(_KEPT_MAX, typed=True)
def _kept_attribute(key: str, value: str | int | float) -> KeyValue:
    field: dict[str, Any] = {_FIELDS[type(value)]: value}
    return KeyValue(key=key, value=AnyValue(**field))
