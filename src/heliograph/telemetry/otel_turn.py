"""The spans of one owned turn.

The span of the turn has an id that follows from the turn's id. The worker that ends the turn records it, with the time since the
first claim. So the calls of a worker that was killed have the right parent, and so have the calls of its successor.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from typing import Any

from opentelemetry.context import attach, detach
from opentelemetry.trace import (
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    format_span_id,
    format_trace_id,
    set_span_in_context,
)

from heliograph.errors import HeliographError
from heliograph.ports import ModelReply, ModelRequest
from heliograph.records import Claimed, Wait
from heliograph.telemetry import otel_content as content
from heliograph.telemetry import semantics as s
from heliograph.telemetry.otel_formats import in_context
from heliograph.telemetry.otel_spans import Recording, RunContext, nanoseconds, span_number
from heliograph.trace_context import in_trace
from heliograph.turn.calls import delegation_of
from heliograph.types import Json, JsonObject

_GOOD = ("success", "partial")


class CurrentSpan:
    """A span as the trace context of the code that runs within it."""

    def __init__(self, recording: Recording, context: SpanContext):
        self._recording = recording
        self._context = context
        self.trace_id = format_trace_id(context.trace_id)
        self.span_id = format_span_id(context.span_id)

    def headers(self) -> dict[str, str]:
        return self._recording.formats.write(self._context)

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make it the current span, for Heliograph, and for all that OpenTelemetry instruments."""
        token = attach(in_context(self._context))
        try:
            with in_trace(self):
                yield
        finally:
            detach(token)


class OtelCall:
    """A model call or a tool call in progress; `span` is None in a trace that is not recorded."""

    def __init__(self, recording: Recording, span: Span | None):
        self._span = span
        self._has_content = recording.settings.captures_content

    def replied(self, reply: ModelReply) -> None:
        if self._span is None:
            return
        self._span.set_attributes(
            {
                s.INPUT_TOKENS: reply.input_tokens,
                s.OUTPUT_TOKENS: reply.output_tokens,
                s.FINISH_REASONS: [content.finish_reason(reply)],
            }
        )
        if reply.cost_usd is not None:
            self._span.set_attribute(s.COST_USD, reply.cost_usd)
        if self._has_content:
            self._span.set_attributes(content.of_reply(reply))

    def returned(self, status: str, output: Json, error: JsonObject | None) -> None:
        if self._span is None:
            return
        if status != "success":
            fail(self._span, str((error or {}).get("code") or status))
        if self._has_content:
            self._span.set_attribute(s.TOOL_RESULT, content.of_value(output if status == "success" else error))


class OtelTurn:
    """The spans of one owned turn."""

    def __init__(self, recording: Recording, run: RunContext, claimed: Claimed, project: str):
        self._recording = recording
        self._run = run
        self._claimed = claimed
        self._number = span_number(claimed.turn_id)
        self._common = {s.CONVERSATION: claimed.run_id, s.AGENT_NAME: claimed.agent}
        self._own = {**self._common, s.AGENT_ID: claimed.agent_id, s.PROJECT: project, s.APPLICATION: claimed.target,
                     s.TURN_ID: claimed.turn_id}  # fmt: skip
        self._claim: Span | None = None
        self._began_at = recording.now()

    @contextmanager
    def claimed(self) -> Iterator[None]:
        self._begin()
        try:
            with CurrentSpan(self._recording, self._run.span(self._number)).current():
                yield
        except BaseException:
            self.released("lost")
            raise
        self.released("released")  # has no effect if the turn has ended, or was released for another reason

    def _begin(self) -> None:
        """Start the span of this claim. It links to the claim before it, which another worker may have had."""
        claimed = self._claimed
        if not self._run.is_sampled:
            return
        earlier = max((wait.epoch for wait in claimed.waits if wait.epoch < claimed.epoch), default=None)
        links = [enqueue_number(claimed.turn_id)] if earlier is None else [_claim_number(claimed.turn_id, earlier)]
        self._claim = self._recording.spans.start(
            self._run, f"claim {claimed.agent}", self._number, at=self._began_at, number=_claim_number(claimed.turn_id, claimed.epoch),
            kind=SpanKind.CONSUMER, links=links, attributes={**self._own, s.EPOCH: claimed.epoch, s.ATTEMPTS: claimed.attempts},
        )  # fmt: skip

    @contextmanager
    def model_call(self, model: str, request: ModelRequest) -> Iterator[OtelCall]:
        attributes: dict[str, Any] = {
            **self._common,
            s.OPERATION: s.CHAT,
            s.PROVIDER: s.provider_of(model),
            s.REQUEST_MODEL: model,
        }
        if request.output_tokens_max is not None:
            attributes[s.REQUEST_MAX_TOKENS] = request.output_tokens_max
        if self._run.is_sampled and self._recording.settings.captures_content:
            attributes |= content.of_request(request)
        with self._call(f"{s.CHAT} {model}", attributes, SpanKind.CLIENT) as call:
            yield call

    @contextmanager
    def tool_call(self, call_id: str, tool: str, arguments: Json) -> Iterator[OtelCall]:
        attributes = {
            **self._common,
            s.OPERATION: s.EXECUTE_TOOL,
            s.TOOL_NAME: tool,
            s.TOOL_CALL_ID: call_id,
            s.TOOL_TYPE: "function",
        }
        if self._run.is_sampled and self._recording.settings.captures_content:
            attributes[s.TOOL_ARGUMENTS] = content.of_value(arguments)
        with self._call(f"{s.EXECUTE_TOOL} {tool}", attributes, SpanKind.INTERNAL, self._call_number(call_id)) as call:
            yield call

    @contextmanager
    def _call(
        self, name: str, attributes: dict[str, Any], kind: SpanKind, number: int | None = None
    ) -> Iterator[OtelCall]:  # fmt: skip
        if not self._run.is_sampled:
            yield OtelCall(self._recording, None)
            return
        span = self._recording.spans.start(
            self._run, name, self._number, at=self._recording.now(), number=number, kind=kind, attributes=attributes
        )
        try:
            with ExitStack() as stack:
                token = attach(set_span_in_context(span))
                stack.callback(detach, token)
                stack.enter_context(in_trace(CurrentSpan(self._recording, span.get_span_context())))
                yield OtelCall(self._recording, span)
        except BaseException as error:
            fail(span, error.code if isinstance(error, HeliographError) else type(error).__name__)
            raise
        finally:
            span.end(nanoseconds(self._recording.now()))

    def headers_of(self, call_id: str) -> dict[str, str]:
        return self._recording.formats.write(self._run.span(self._call_number(call_id)))

    def released(self, outcome: str) -> None:
        if self._claim is not None:
            self._claim.set_attribute(s.OUTCOME, outcome)
            self._claim.end(nanoseconds(self._recording.now()))
            self._claim = None

    def ended(self, claimed: Claimed, outcome: str, error: JsonObject | None, usage: tuple[int, int]) -> None:
        if not self._run.is_sampled:
            return
        now = self._recording.now()
        for wait in claimed.waits:
            self._record_wait(wait, now)
        attributes: dict[str, Any] = {**self._own, s.OPERATION: s.INVOKE_AGENT, s.OUTCOME: outcome}
        if usage != (0, 0):
            attributes |= {s.INPUT_TOKENS: usage[0], s.OUTPUT_TOKENS: usage[1]}
        span = self._recording.spans.start(
            self._run, f"{s.INVOKE_AGENT} {claimed.agent}", self._parent(), number=self._number, attributes=attributes,
            at=self._began_at - timedelta(seconds=self._claimed.age_seconds),
        )  # fmt: skip
        if outcome not in _GOOD:
            fail(span, str((error or {}).get("code") or outcome))
        span.end(nanoseconds(now))
        self.released("ended")

    def _parent(self) -> int:
        """The call that delegated the turn, or the turn that caused it, or the run."""
        claimed, delegation = self._claimed, delegation_of(self._claimed.cause)
        if claimed.parent_turn_id is not None and delegation is not None:
            return span_number(f"{claimed.parent_turn_id}:{delegation.get('id')}")
        return self._run.root if claimed.cause.turn_id is None else span_number(claimed.cause.turn_id)

    def _record_wait(self, wait: Wait, now: datetime) -> None:
        """Record a call that the turn waited for: a tool elsewhere, another agent, a person, or a timer."""
        if wait.kind == "inline" or wait.opened_at is None:
            return
        attributes = {**self._common, s.CALL_KIND: wait.kind, s.TOOL_CALL_ID: wait.call_id}
        operation = s.INVOKE_AGENT if wait.kind == "child" else s.EXECUTE_TOOL
        attributes |= {s.OPERATION: operation, s.AGENT_NAME if wait.kind == "child" else s.TOOL_NAME: wait.tool}
        span = self._recording.spans.start(
            self._run, f"{operation} {wait.tool}", self._number, at=wait.opened_at, number=self._call_number(wait.call_id),
            kind=SpanKind.CLIENT, attributes=attributes,
        )  # fmt: skip
        if wait.status is not None and wait.status != "success":
            error = wait.content.get("error") if isinstance(wait.content, dict) else None
            fail(span, str(error.get("code") or wait.status) if isinstance(error, dict) else wait.status)
        span.end(nanoseconds(max(wait.opened_at, wait.resolved_at or now)))

    def _call_number(self, call_id: str) -> int:
        return span_number(f"{self._claimed.turn_id}:{call_id}")


def enqueue_number(turn_id: str) -> int:
    """Return the id of the span that records the activation of a turn."""
    return span_number(f"{turn_id}/enqueue")


def fail(span: Span, code: str) -> None:
    """Mark a span as failed. Messages may have contents, so it gets the code only."""
    span.set_attribute(s.ERROR_TYPE, code)
    span.set_status(Status(StatusCode.ERROR, code))


def _claim_number(turn_id: str, epoch: int) -> int:
    return span_number(f"{turn_id}/{epoch}")
