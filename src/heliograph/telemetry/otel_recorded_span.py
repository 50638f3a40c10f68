"""A span that is known only at its end. It is cheaper than a span of the SDK, because most of its contexts are never created."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

SAMPLED, NOT_SAMPLED = TraceFlags(TraceFlags.SAMPLED), TraceFlags(TraceFlags.DEFAULT)
_UNSET = Status()


class RecordedSpan(ReadableSpan):
    """A finished span, whose attributes are ids, names and numbers.

    above: the id of its parent in the same trace, or the context of a parent of another system. linked: likewise.
    """

    def __init__(
        self, name: str, trace_id: int, number: int, above: int | SpanContext | None, linked: Sequence[int | SpanContext] = (), *,
        kind: SpanKind, attributes: Mapping[str, str | int | float], error: str | None, start: int, end: int,
        resource: Resource, scope: InstrumentationScope,
    ):  # fmt: skip
        own = SpanContext(trace_id, number, is_remote=False, trace_flags=SAMPLED)
        status = _UNSET if error is None else Status(StatusCode.ERROR, error)
        super().__init__(name, own, None, resource, attributes, (), (), kind, None, status, start, end, scope)
        self.trace_id = trace_id
        self.number = number
        self.above = above
        self.linked = linked
        self.error = error
        self.values = attributes

    @property
    def parent(self) -> SpanContext | None:
        return None if self.above is None else self._context_of(self.above)

    @property
    def links(self) -> Sequence[Link]:
        return tuple(Link(self._context_of(each)) for each in self.linked)

    def _context_of(self, span: int | SpanContext) -> SpanContext:
        """The context of a span that may be of another process."""
        if isinstance(span, SpanContext):
            return span
        return SpanContext(self.trace_id, span, is_remote=True, trace_flags=SAMPLED)
