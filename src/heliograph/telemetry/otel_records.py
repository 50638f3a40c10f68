"""Record spans that several workers could record: the calls that a turn waited for, turns that the kernel ended, and runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from opentelemetry.trace import Span, SpanContext, SpanKind, Status, StatusCode

from heliograph.reactive.reaction import Reaction
from heliograph.records import EndedTurn, PendingSignal, Wait
from heliograph.telemetry import semantics as s
from heliograph.telemetry.otel_spans import Recording, RunContext, span_number


def call_number(turn_id: str, call_id: str) -> int:
    """Return the id of the span of a call."""
    return span_number(f"{turn_id}:{call_id}")


def enqueue_number(turn_id: str) -> int:
    """Return the id of the span that records the activation of a turn."""
    return span_number(f"{turn_id}/enqueue")


def fail(span: Span, code: str) -> None:
    """Mark a span as failed. Messages may have contents, so it gets the code only."""
    code = code or s.OTHER_ERROR
    span.set_attribute(s.ERROR_TYPE, code)
    span.set_status(Status(StatusCode.ERROR, code))


def record_call(
    recording: Recording, run: RunContext, common: Mapping[str, Any], turn_id: str, wait: Wait, now: datetime
) -> None:
    """Record a call that a turn waited for: a tool elsewhere, another agent, a person, or a timer. common: attributes.

    It records nothing for a call without times: a claim has none for inline calls.
    """
    if wait.opened_at is None:
        return
    operation = s.INVOKE_AGENT if wait.kind == "child" else s.EXECUTE_TOOL
    attributes = {**common, s.CALL_KIND: wait.kind, s.TOOL_CALL_ID: wait.call_id, s.OPERATION: operation,
                  s.AGENT_NAME if wait.kind == "child" else s.TOOL_NAME: wait.tool}  # fmt: skip
    code = None
    if wait.status is not None and wait.status != "success":
        error = wait.content.get("error") if isinstance(wait.content, dict) else None
        code = str(error.get("code") or wait.status) if isinstance(error, dict) else wait.status
    recording.spans.record(
        run, f"{operation} {wait.tool}", span_number(turn_id), since=wait.opened_at, until=wait.resolved_at or now,
        number=call_number(turn_id, wait.call_id), kind=SpanKind.INTERNAL if wait.kind == "inline" else SpanKind.CLIENT,
        attributes=attributes, error=code,
    )  # fmt: skip


def record_enqueue(
    recording: Recording, run: RunContext, run_id: str, agent: str, turn_id: str, parent: int, *, since: datetime,
    links: Sequence[SpanContext] = (),
) -> None:  # fmt: skip
    """Record the activation of a turn, after the commit that it is part of. links: the sender, if it has another trace."""
    recording.spans.record(
        run, f"enqueue {agent}", parent, since=since, until=recording.now(), number=enqueue_number(turn_id), kind=SpanKind.PRODUCER,
        links=links, attributes={s.CONVERSATION: run_id, s.AGENT_NAME: agent, s.TURN_ID: turn_id},
    )  # fmt: skip


def record_ended(recording: Recording, run: RunContext, run_id: str, signal: PendingSignal, now: datetime) -> None:
    """Record a turn that the kernel ended, the calls that it waited for, and the inline calls that were open at its end.

    Such an inline call may have spans below it. Its worker records the attempt under another id, because another owner may repeat it.
    """
    if signal.ended is None or signal.turn_id is None:
        return
    common = {s.CONVERSATION: run_id, s.AGENT_NAME: str(signal.agent)}
    for call in signal.ended.calls:
        record_call(recording, run, common, signal.turn_id, call, now)
    payload = signal.payload if isinstance(signal.payload, dict) else {}
    outcome, error = str(payload.get("outcome")), payload.get("error")
    recording.spans.record(
        run, f"{s.INVOKE_AGENT} {signal.agent}", _parent_of(signal.ended, run), since=min(now, signal.ended.claimed_at or now), until=now,
        number=span_number(signal.turn_id),
        attributes={**common, s.OPERATION: s.INVOKE_AGENT, s.TURN_ID: signal.turn_id, s.OUTCOME: outcome},
        error=str(error.get("code") or outcome) if isinstance(error, dict) else outcome,
    )  # fmt: skip


def _parent_of(ended: EndedTurn, run: RunContext) -> int:
    if ended.parent_turn_id is not None and ended.parent_call_id is not None:
        return call_number(ended.parent_turn_id, ended.parent_call_id)
    return run.root if ended.cause_turn_id is None else span_number(ended.cause_turn_id)


def record_reaction(
    recording: Recording, run: RunContext, application: str, run_id: str, turn_id: str | None, reaction: Reaction
) -> None:
    """Record the turns that a committed reaction has activated, and the end of the run. turn_id: the turn that caused it."""
    now, parent = recording.now(), run.root if turn_id is None else span_number(turn_id)
    for each in reaction.activations:
        record_enqueue(recording, run, run_id, each["agent"], each["turn_id"], parent, since=now)
    if reaction.status == "ended":
        _record_run(recording, run, application, run_id, reaction, now)


def started_at(memory: Mapping[str, Any] | None, default: datetime) -> datetime:
    """The time of the start of a run, from its memory, which may be edited."""
    try:
        return datetime.fromisoformat((memory or {})["started_at"])
    except (KeyError, TypeError, ValueError):
        return default


def _record_run(
    recording: Recording, run: RunContext, application: str, run_id: str, reaction: Reaction, now: datetime
) -> None:
    attributes: dict[str, Any] = {s.CONVERSATION: run_id, s.APPLICATION: application, s.OUTCOME: reaction.outcome}
    if recording.settings.is_experimental:
        attributes |= {s.OPERATION: s.INVOKE_WORKFLOW, s.WORKFLOW_NAME: application}
    is_good = reaction.outcome in ("success", "partial")
    recording.spans.record(
        run, f"{s.INVOKE_WORKFLOW} {application}", None, since=started_at(reaction.memory, now), until=now, number=run.root,
        attributes=attributes, error=None if is_good else str((reaction.memory or {}).get("code") or reaction.outcome),
    )  # fmt: skip
