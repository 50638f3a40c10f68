"""Decide which traces are recorded, once for each run and before anything else of its trace exists."""

from __future__ import annotations

import re

from opentelemetry.context import Context
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Decision, ParentBased, Sampler, TraceIdRatioBased
from opentelemetry.trace import SpanContext

from heliograph.telemetry import semantics as s
from heliograph.telemetry.otel_formats import in_context

_RATIO = re.compile(r"ParentBased\{root:TraceIdRatioBased\{([0-9.e-]+)\}")


class Sampling:
    """Makes the decisions of `sampler`. For a ratio of the traces without a caller, the usual case, it creates no object of the SDK."""

    def __init__(self, sampler: Sampler):
        self._sampler = sampler
        self._bound = _bound_of(sampler)

    def records(self, trace_id: int, caller: SpanContext | None) -> bool:
        """Whether a trace is recorded. caller: the span that it continues, if there is one."""
        if self._bound is None:
            above = Context() if caller is None else in_context(caller)
            decision = self._sampler.should_sample(above, trace_id, s.INVOKE_WORKFLOW).decision
            return decision is Decision.RECORD_AND_SAMPLE
        if caller is not None:
            return caller.trace_flags.sampled
        return trace_id & TraceIdRatioBased.TRACE_ID_LIMIT < self._bound


def _bound_of(sampler: Sampler) -> int | None:
    """The bound of the trace ids that a sampler records; None unless it is a ratio that the caller's decision overrules."""
    description = _description_of(sampler)
    if description == _description_of(ParentBased(ALWAYS_ON)):
        return TraceIdRatioBased.get_bound_for_rate(1.0)
    found = _RATIO.match(description)
    if found is None or description != _description_of(ParentBased(TraceIdRatioBased(float(found[1])))):
        return None
    return TraceIdRatioBased.get_bound_for_rate(float(found[1]))


def _description_of(sampler: Sampler) -> str:
    return sampler.get_description()
