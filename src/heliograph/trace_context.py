"""The trace context of the code that runs now: for logs, and for requests to other systems. Without telemetry there is none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol


class TraceContext(Protocol):
    """The span that is in progress. trace_id, span_id: in hexadecimal."""

    @property
    def trace_id(self) -> str: ...

    @property
    def span_id(self) -> str: ...

    def headers(self) -> dict[str, str]:
        """Return the headers that continue the trace in another system, in the configured formats."""
        ...


_current: ContextVar[TraceContext | None] = ContextVar("heliograph_trace", default=None)


def current_trace() -> TraceContext | None:
    """Return the trace context of the code that runs now."""
    return _current.get()


def trace_ids() -> tuple[str, str] | None:
    """Return the ids of the current trace and span, in hexadecimal."""
    trace = _current.get()
    return None if trace is None else (trace.trace_id, trace.span_id)


def trace_headers() -> dict[str, str]:
    """Return the headers by which a request to another system continues the current trace; empty without telemetry."""
    trace = _current.get()
    return {} if trace is None else trace.headers()


@contextmanager
def in_trace(trace: TraceContext) -> Iterator[None]:
    """Make `trace` the current one for the body of the `with` statement, and for the tasks that it starts."""
    token = _current.set(trace)
    try:
        yield
    finally:
        _current.reset(token)
