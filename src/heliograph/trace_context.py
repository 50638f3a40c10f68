"""The trace context of the code that runs now: for logs, and for requests to other systems. Without telemetry there is none."""

from __future__ import annotations

from contextvars import ContextVar, Token
from typing import Protocol

__all__ = ["trace_headers"]


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


def enter_trace(trace: TraceContext) -> Token[TraceContext | None]:
    """Make `trace` the current one, also for the tasks that start now. Returns the token for `exit_trace`."""
    return _current.set(trace)


def exit_trace(token: Token[TraceContext | None]) -> None:
    """Make the trace before `enter_trace` the current one again."""
    _current.reset(token)
