"""A turn of a trace that is not recorded: its context is propagated, and nothing else exists of it."""

from __future__ import annotations

import logging
from contextvars import Token
from functools import cached_property

from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import (
    INVALID_SPAN_CONTEXT,
    NonRecordingSpan,
    SpanContext,
    format_span_id,
    format_trace_id,
    set_span_in_context,
)

from heliograph.telemetry.null_tracer import NullTurn
from heliograph.telemetry.otel_formats import Formats
from heliograph.telemetry.otel_spans import RunContext, span_number
from heliograph.trace_context import TraceContext, current_trace, enter_trace, exit_trace

log = logging.getLogger("heliograph.telemetry")


class _UnrecordedSpan(NonRecordingSpan):
    """The span of the current turn, for instrumented libraries: their spans below it are not recorded either.

    One object serves all turns, because it reads the turn when it is used.
    """

    def __init__(self) -> None:
        super().__init__(INVALID_SPAN_CONTEXT)

    def get_span_context(self) -> SpanContext:
        turn = current_trace()
        return turn.context if isinstance(turn, UnrecordedTurn) else INVALID_SPAN_CONTEXT

    def __repr__(self) -> str:
        return f"_UnrecordedSpan({self.get_span_context()!r})"


_CONTEXT = set_span_in_context(_UnrecordedSpan(), Context())


class UnrecordedTurn(NullTurn):
    """The context of one owned turn, for its log, its requests, and the libraries that OpenTelemetry instruments.

    It is its own context manager and trace context. The id of its span is computed when it is read, which most turns never do.
    """

    def __init__(self, formats: Formats, run: RunContext, turn_id: str):
        self._formats = formats
        self._run = run
        self._turn_id = turn_id
        self._tokens: tuple[Token[Context], Token[TraceContext | None]] | None = None

    @cached_property
    def context(self) -> SpanContext:
        """The context of the span that the turn would have."""
        return self._run.span(span_number(self._turn_id))

    @property
    def ids(self) -> tuple[str, str]:  # type: ignore[override]
        return self.trace_id, self.span_id

    @property
    def trace_id(self) -> str:
        return format_trace_id(self._run.trace_id)

    @property
    def span_id(self) -> str:
        return format_span_id(self.context.span_id)

    def headers(self) -> dict[str, str]:
        return self._formats.write(self.context)

    def headers_of(self, call_id: str) -> dict[str, str]:
        return self._formats.write(self._run.span(span_number(f"{self._turn_id}:{call_id}")))

    def claimed(self) -> UnrecordedTurn:
        return self

    def __enter__(self) -> None:
        self._tokens = attach(_CONTEXT), enter_trace(self)

    def __exit__(self, *_: object) -> None:
        if self._tokens is not None:
            try:
                exit_trace(self._tokens[1])
                detach(self._tokens[0])
            except ValueError:  # the turn is closed in another context, at the end of its process
                log.debug("the trace context of %s was not left", self._turn_id)
