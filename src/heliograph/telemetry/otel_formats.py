"""The formats of trace headers: W3C, B3 in one header or in several, and Jaeger. Incoming headers are read in all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from opentelemetry.context import Context
from opentelemetry.propagators.b3 import B3MultiFormat, B3SingleFormat
from opentelemetry.propagators.jaeger import JaegerPropagator
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import NonRecordingSpan, SpanContext, get_current_span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_W3C = TraceContextTextMapPropagator()
_FORMATS: Mapping[str, TextMapPropagator] = {
    "w3c": _W3C, "b3": B3SingleFormat(), "b3multi": B3MultiFormat(), "jaeger": JaegerPropagator(),
}  # fmt: skip
_NAMES = frozenset(
    ("traceparent", "tracestate", "b3", "x-b3-traceid", "x-b3-spanid", "x-b3-sampled", "x-b3-flags", "uber-trace-id")
)
_VALUE_MAX = 512  # longer headers are ignored: a trace context needs 70 bytes, and its vendor part may be dropped


class Formats:
    """Reads headers in all formats, and writes them in the configured ones."""

    def __init__(self, names: Sequence[str]):
        self._written = [_FORMATS[name] for name in names]
        self._read = [*self._written, *(each for each in _FORMATS.values() if each not in self._written)]

    def write(self, context: SpanContext) -> dict[str, str]:
        headers: dict[str, str] = {}
        for each in self._written:
            each.inject(headers, in_context(context))
        return headers

    def read(self, headers: Iterable[tuple[bytes, bytes]]) -> SpanContext | None:
        """Return the context of a request's headers; None if no format finds a valid one. The first configured format wins."""
        carrier: dict[str, str] = {}
        for name, value in headers:
            if (key := name.decode("latin-1").lower()) in _NAMES:
                if key == "tracestate" and key in carrier:  # several headers are one list
                    value = carrier.pop(key).encode("latin-1") + b"," + value  # noqa: PLW2901
                if key in carrier:  # which of the two is right is unknown
                    return None
                if len(value) <= _VALUE_MAX:
                    carrier[key] = value.decode("latin-1")
        return self._context_of(carrier) if carrier else None

    def _context_of(self, carrier: Mapping[str, str]) -> SpanContext | None:
        for each in self._read:
            try:
                context = get_current_span(each.extract(carrier, Context())).get_span_context()
            except ValueError:  # a number of another system of digits
                continue
            if context.is_valid:
                return context
        return None


def in_context(context: SpanContext) -> Context:
    """Return a context of OpenTelemetry whose current span is the one of this id."""
    return set_span_in_context(NonRecordingSpan(context), Context())


def written_w3c(context: SpanContext) -> str:
    """Return a context as the memory of a run keeps it."""
    carrier: dict[str, str] = {}
    _W3C.inject(carrier, in_context(context))
    return carrier["traceparent"]


def read_w3c(text: object) -> SpanContext | None:
    """Return the context that the memory of a run keeps; None for another value."""
    if not isinstance(text, str):
        return None
    context = get_current_span(_W3C.extract({"traceparent": text}, Context())).get_span_context()
    return context if context.is_valid else None
