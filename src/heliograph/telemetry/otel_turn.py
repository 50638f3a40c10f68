"""The spans of one owned turn.

The span of the turn has an id that follows from the turn's id. The worker that ends the turn records it, with the time since the
first claim. So the calls of a worker that was killed have the right parent, and so have the calls of its successor.

Likewise, the span of a tool call has an id that follows from the id of the call. If an exception leaves the call, another owner of the
turn may make it again. So its span is undecided until this worker ends the turn or releases it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import Token
from datetime import datetime, timedelta
from typing import Any

from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import (
    Span,
    SpanContext,
    SpanKind,
    format_span_id,
    format_trace_id,
    set_span_in_context,
)

from heliograph.errors import HeliographError
from heliograph.ports import ModelReply, ModelRequest
from heliograph.reactive.reaction import Reaction
from heliograph.records import Claimed
from heliograph.telemetry import otel_content as content
from heliograph.telemetry import semantics as s
from heliograph.telemetry.otel_formats import in_context
from heliograph.telemetry.otel_guard import guarded, nothing
from heliograph.telemetry.otel_records import (
    call_number,
    enqueue_number,
    fail,
    record_call,
    record_enqueue,
    record_reaction,
)
from heliograph.telemetry.otel_spans import Recording, RunContext, nanoseconds, span_number
from heliograph.trace_context import TraceContext, enter_trace, exit_trace
from heliograph.turn.calls import delegation_of
from heliograph.types import Json, JsonObject

_GOOD = ("success", "partial")


class CurrentSpan:
    """A span as the trace context of the code that runs now: of Heliograph, and of all that OpenTelemetry instruments.

    A context manager without a generator, because each turn enters one, also in traces that are not recorded. span: if it is recorded.
    """

    def __init__(self, recording: Recording, context: SpanContext, span: Span | None = None):
        self._recording = recording
        self._context = context
        self._span = span
        self._tokens: tuple[Token[Context], Token[TraceContext | None]] | None = None

    @property
    def trace_id(self) -> str:
        return format_trace_id(self._context.trace_id)

    @property
    def span_id(self) -> str:
        return format_span_id(self._context.span_id)

    def headers(self) -> dict[str, str]:
        return self._recording.formats.write(self._context)

    @guarded(nothing)
    def __enter__(self) -> None:
        attached = attach(in_context(self._context) if self._span is None else set_span_in_context(self._span))
        self._tokens = attached, enter_trace(self)

    def __exit__(self, *_: object) -> None:
        self._exit()

    @guarded(nothing)
    def _exit(self) -> None:
        if self._tokens is not None:
            exit_trace(self._tokens[1])
            detach(self._tokens[0])


class OtelCall:
    """A model call or a tool call in progress; `span` is None in a trace that is not recorded."""

    def __init__(self, recording: Recording, span: Span | None):
        self._span = span
        self._has_content = recording.settings.captures_content

    @guarded(nothing)
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

    @guarded(nothing)
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
        self._project = project
        self._common = {s.CONVERSATION: claimed.run_id, s.AGENT_NAME: claimed.agent}
        self._is_claimed = False
        self._undecided: list[tuple[Span, int, datetime]] = []  # calls that an exception has left, with their ends
        self._provider: dict[str, str] = {}
        self._began_at = recording.now()

    @property
    def _own(self) -> dict[str, str]:
        claimed = self._claimed
        return {**self._common, s.AGENT_ID: claimed.agent_id, s.PROJECT: self._project, s.APPLICATION: claimed.target,
                s.TURN_ID: claimed.turn_id}  # fmt: skip

    @property
    def ids(self) -> tuple[str, str] | None:
        return format_trace_id(self._run.trace_id), format_span_id(self._number)

    @contextmanager
    def claimed(self) -> Iterator[None]:
        self._is_claimed = True
        with CurrentSpan(self._recording, self._run.span(self._number)):
            try:
                yield
            except BaseException:
                self.released("lost")
                raise
        self.released("released")  # has no effect if the turn has ended, or was released for another reason

    def _record_claim(self, outcome: str) -> None:
        """Record the span of this claim. It links to the claim before it, which another worker may have had."""
        claimed, earlier = self._claimed, self._claimed.earlier_epoch
        link = enqueue_number(claimed.turn_id) if earlier is None else _claim_number(claimed.turn_id, earlier)
        self._recording.spans.record(
            self._run, f"claim {claimed.agent}", self._number, since=self._began_at, until=self._recording.now(),
            number=_claim_number(claimed.turn_id, claimed.epoch), kind=SpanKind.CONSUMER, links=[link],
            attributes={**self._own, s.EPOCH: claimed.epoch, s.ATTEMPTS: claimed.attempts, s.OUTCOME: outcome},
        )  # fmt: skip

    @contextmanager
    def model_call(self, model: str, request: ModelRequest) -> Iterator[OtelCall]:
        span = self._begin_model_call(model, request)
        with self._within(span) as call:
            yield call

    @guarded(nothing)
    def _begin_model_call(self, model: str, request: ModelRequest) -> Span | None:
        self._provider = {s.PROVIDER: s.provider_of(model)}
        attributes: dict[str, Any] = {**self._common, **self._provider, s.OPERATION: s.CHAT, s.REQUEST_MODEL: model}
        if request.output_tokens_max is not None:
            attributes[s.REQUEST_MAX_TOKENS] = request.output_tokens_max
        if self._recording.settings.captures_content:
            attributes |= content.of_request(request)
        return self._start(f"{s.CHAT} {model}", attributes, SpanKind.CLIENT)

    @contextmanager
    def tool_call(self, call_id: str, tool: str, arguments: Json) -> Iterator[OtelCall]:
        with self._within(self._begin_tool_call(call_id, tool, arguments), call_id) as call:
            yield call

    @guarded(nothing)
    def _begin_tool_call(self, call_id: str, tool: str, arguments: Json) -> Span | None:
        attributes = {
            **self._common,
            s.OPERATION: s.EXECUTE_TOOL,
            s.TOOL_NAME: tool,
            s.TOOL_CALL_ID: call_id,
            s.TOOL_TYPE: "function",
        }
        if self._recording.settings.captures_content:
            attributes[s.TOOL_ARGUMENTS] = content.of_value(arguments)
        return self._start(f"{s.EXECUTE_TOOL} {tool}", attributes, SpanKind.INTERNAL, self._call_number(call_id))

    def _start(self, name: str, attributes: Mapping[str, Any], kind: SpanKind, number: int | None = None) -> Span:
        return self._recording.spans.start(
            self._run, name, self._number, at=self._recording.now(), number=number, kind=kind, attributes=attributes
        )

    @contextmanager
    def _within(self, span: Span | None, call_id: str | None = None) -> Iterator[OtelCall]:
        """Make a span current, and end it. call_id: of a tool call, which another owner may make again after an exception."""
        call = OtelCall(self._recording, span)
        if span is None:
            yield call
            return
        try:
            with CurrentSpan(self._recording, span.get_span_context(), span):
                yield call
        except BaseException as error:
            self._left(span, error, call_id)
            raise
        self._end(span)

    @guarded(nothing)
    def _end(self, span: Span) -> None:
        span.end(nanoseconds(self._recording.now()))

    @guarded(nothing)
    def _left(self, span: Span, error: BaseException, call_id: str | None) -> None:
        fail(span, error.code if isinstance(error, HeliographError) else type(error).__name__)
        if call_id is None:
            self._end(span)
        else:
            number = span_number(f"{self._claimed.turn_id}:{call_id}/{self._claimed.epoch}")
            self._undecided.append((span, number, self._recording.now()))

    @guarded(dict)
    def headers_of(self, call_id: str) -> dict[str, str]:
        return self._recording.formats.write(self._run.span(self._call_number(call_id)))

    @guarded(nothing)
    def delegated(self, call_id: str, agent: str, turn_id: str) -> None:
        record_enqueue(
            self._recording, self._run, self._claimed.run_id, agent, turn_id, self._call_number(call_id), since=self._recording.now()
        )  # fmt: skip

    @guarded(nothing)
    def released(self, outcome: str) -> None:
        for span, number, ended_at in self._undecided:  # the next owner may record these calls under their own ids
            self._recording.spans.copy(self._run, span, number).end(nanoseconds(ended_at))
        self._undecided.clear()
        if self._is_claimed:
            self._is_claimed = False
            self._record_claim(outcome)

    @guarded(nothing)
    def reacted(self, reaction: Reaction) -> None:
        claimed = self._claimed
        record_reaction(self._recording, self._run, claimed.target, claimed.run_id, claimed.turn_id, reaction)

    @guarded(nothing)
    def ended(self, claimed: Claimed, outcome: str, error: JsonObject | None, usage: tuple[int, int]) -> None:
        now = self._recording.now()
        for span, _, ended_at in self._undecided:
            span.end(nanoseconds(ended_at))
        self._undecided.clear()
        for wait in claimed.waits:
            record_call(self._recording, self._run, self._common, claimed.turn_id, wait, now)
        attributes: dict[str, Any] = {**self._own, **self._provider, s.OPERATION: s.INVOKE_AGENT, s.OUTCOME: outcome}
        if usage != (0, 0):
            attributes |= {s.INPUT_TOKENS: usage[0], s.OUTPUT_TOKENS: usage[1]}
        self._recording.spans.record(
            self._run, f"{s.INVOKE_AGENT} {claimed.agent}", self._parent(), number=self._number, attributes=attributes,
            since=self._began_at - timedelta(seconds=self._claimed.age_seconds), until=now,
            error=None if outcome in _GOOD else str((error or {}).get("code") or outcome),
        )  # fmt: skip
        self.released("ended")

    def _parent(self) -> int:
        """The call that delegated the turn, or the turn that caused it, or the run."""
        claimed, delegation = self._claimed, delegation_of(self._claimed.cause)
        if claimed.parent_turn_id is not None and delegation is not None:
            return call_number(claimed.parent_turn_id, str(delegation.get("id")))
        return self._run.root if claimed.cause.turn_id is None else span_number(claimed.cause.turn_id)

    def _call_number(self, call_id: str) -> int:
        return call_number(self._claimed.turn_id, call_id)


def _claim_number(turn_id: str, epoch: int) -> int:
    return span_number(f"{turn_id}/{epoch}")
