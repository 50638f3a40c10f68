"""Create spans whose ids and times are given, because several processes compute the same ones."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, Span, SpanContext, SpanKind

from heliograph.ids import span_number_of
from heliograph.telemetry import semantics as s
from heliograph.telemetry.otel_formats import Formats, in_context
from heliograph.telemetry.otel_recorded_span import NOT_SAMPLED, SAMPLED, RecordedSpan
from heliograph.telemetry.settings import TelemetrySettings

_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
_SCOPE = "heliograph"


class PlannedIds(RandomIdGenerator):
    """Gives the next span of this thread the planned ids, and all others random ones."""

    def __init__(self) -> None:
        self._next = threading.local()

    def plan(self, trace_id: int, span_id: int | None) -> None:
        self._next.trace_id, self._next.span_id = trace_id, span_id

    def forget(self) -> None:
        self._next.trace_id = self._next.span_id = None

    def generate_trace_id(self) -> int:
        return getattr(self._next, "trace_id", None) or super().generate_trace_id()

    def generate_span_id(self) -> int:
        return getattr(self._next, "span_id", None) or super().generate_span_id()


class RunContext:
    """The trace of one run. parent: the span of the system that started it, if it is known."""

    def __init__(self, run_id: str, trace_id: int, parent: SpanContext | None, *, is_sampled: bool):
        self.trace_id = trace_id
        self.parent = parent
        self.is_sampled = is_sampled
        self._run_id = run_id

    @cached_property
    def root(self) -> int:
        """The id of the span of the run."""
        return span_number(self._run_id)

    def span(self, number: int) -> SpanContext:
        """Return the context of one span of this trace, which may be of another process."""
        return SpanContext(
            self.trace_id, number, is_remote=True, trace_flags=SAMPLED if self.is_sampled else NOT_SAMPLED
        )


class Spans:
    """Creates the spans of sampled traces. record: receives each span that has ended.

    A span that is current while code runs is one of the SDK, because the code may add to it. A span that is known only at its end is
    recorded as it is, which costs a fraction: the SDK would sample it again, and copy and check its attributes.
    """

    def __init__(self, provider: TracerProvider, ids: PlannedIds, record: Callable[[ReadableSpan], None]):
        self._tracer = provider.get_tracer(_SCOPE)
        self._ids = ids
        self._record = record
        self._resource, self._scope = provider.resource, InstrumentationScope(_SCOPE)

    def start(
        self, run: RunContext, name: str, parent: int | None, *, at: datetime, number: int | None = None,
        kind: SpanKind = SpanKind.INTERNAL, attributes: Mapping[str, Any] | None = None, links: Sequence[int | SpanContext] = (),
    ) -> Span:  # fmt: skip
        """Start a span. parent: a span of the run; None for the span of the run itself. number: its id; None for a random one.

        links: spans of the run, or contexts of spans of other traces.
        """
        above = run.parent if parent is None else run.span(parent)
        self._ids.plan(run.trace_id, number)
        try:
            return self._tracer.start_span(
                name, Context() if above is None else in_context(above), kind, attributes,
                [Link(run.span(link) if isinstance(link, int) else link) for link in links], nanoseconds(at),
            )  # fmt: skip
        finally:
            self._ids.forget()

    def copy(self, run: RunContext, span: Span, number: int) -> Span:
        """Start a span like an unfinished one, with another id."""
        assert isinstance(span, ReadableSpan)
        parent = None if span.parent is None else span.parent.span_id
        self._ids.plan(run.trace_id, number)
        try:
            above = Context() if parent is None else in_context(run.span(parent))
            copied = self._tracer.start_span(span.name, above, span.kind, span.attributes, start_time=span.start_time)
        finally:
            self._ids.forget()
        copied.set_status(span.status)
        return copied

    def record(
        self, run: RunContext, name: str, parent: int | None, *, since: datetime, until: datetime,
        attributes: Mapping[str, str | int | float] | None = None, number: int | None = None, kind: SpanKind = SpanKind.INTERNAL,
        links: Sequence[int | SpanContext] = (), error: str | None = None,
    ) -> None:  # fmt: skip
        """Record a span that has ended. error: its code, for one that failed. See `start`."""
        found = attributes or {}
        if error is not None:
            error = error or s.OTHER_ERROR
            found = {**found, s.ERROR_TYPE: error}
        began = nanoseconds(since)
        self._record(RecordedSpan(
            name, run.trace_id, number or self._ids.generate_span_id(), run.parent if parent is None else parent, links, kind=kind,
            attributes=found, error=error, start=began, end=max(began, nanoseconds(until)), resource=self._resource, scope=self._scope,
        ))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Recording:
    """What the tracer and its turns share. now: the clock of the world."""

    settings: TelemetrySettings
    formats: Formats
    spans: Spans
    now: Callable[[], datetime]


def span_number(name: str) -> int:
    """Return the id of a span by its name: see `span_id_of`."""
    return span_number_of(name) or 1


def nanoseconds(at: datetime) -> int:
    return (at - _EPOCH) // _MICROSECOND * 1000
