"""The tracer of OpenTelemetry: the trace of a run follows from its id, or from the trace of its caller, which its memory keeps."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import Decision, Sampler
from opentelemetry.trace import SpanKind, get_current_span

from heliograph.ids import trace_id_of
from heliograph.reactive.reaction import Reaction
from heliograph.reactive.run_memory import RECEIVED_TRACE_ID, TRACE_PARENT
from heliograph.records import Claimed, PendingSignal
from heliograph.telemetry import semantics as s
from heliograph.telemetry.otel_formats import Formats, in_context, read_w3c, written_w3c
from heliograph.telemetry.otel_spans import PlannedIds, Recording, RunContext, Spans, nanoseconds, span_number
from heliograph.telemetry.otel_turn import OtelTurn, enqueue_number, fail
from heliograph.telemetry.settings import TelemetrySettings

_TRACE_ID = re.compile(r"(?!0{32})[0-9a-f]{32}")


class OtelTracer:
    """Records the runs and turns of one process. now: the clock of the world."""

    def __init__(
        self, settings: TelemetrySettings, provider: TracerProvider, ids: PlannedIds, sampler: Sampler, now: Callable[[], datetime]
    ):  # fmt: skip
        self.recording = Recording(settings, Formats(settings.propagation), Spans(provider, ids), now)
        self._sampler = sampler

    def memory_of_start(self, headers: Iterable[tuple[bytes, bytes]] | None = None) -> dict[str, Any]:
        caller = get_current_span().get_span_context() if headers is None else self.recording.formats.read(headers)
        return {} if caller is None or not caller.is_valid else {TRACE_PARENT: written_w3c(caller)}

    def started(self, application: str, run_id: str, reaction: Reaction) -> None:
        run = self._run(run_id, reaction.memory or {})
        if run.is_sampled:
            self.recording.spans.record(run, f"start {application}", run.root, since=_started_at(reaction.memory, self.recording.now()), until=self.recording.now(),
                              kind=SpanKind.PRODUCER, attributes={s.CONVERSATION: run_id, s.APPLICATION: application})  # fmt: skip
        self.reacted(application, run_id, None, reaction)

    def reacted(
        self,
        application: str,
        run_id: str,
        turn_id: str | None,
        reaction: Reaction,
        pending: Sequence[PendingSignal] = (),
    ) -> None:
        run = self._run(run_id, reaction.memory or {})
        if not run.is_sampled:
            return
        now, parent = self.recording.now(), run.root if turn_id is None else span_number(turn_id)
        for each in reaction.activations:
            self.recording.spans.record(
                run, f"enqueue {each['agent']}", parent, since=now, until=now, number=enqueue_number(each["turn_id"]), kind=SpanKind.PRODUCER,
                attributes={s.CONVERSATION: run_id, s.AGENT_NAME: each["agent"], s.TURN_ID: each["turn_id"]},
            )  # fmt: skip
        for signal in pending:
            self._record_ended(run, run_id, signal, now)
        if reaction.status == "ended":
            self._record_run(run, application, run_id, reaction, now)

    def turn(self, claimed: Claimed, project: str) -> OtelTurn:
        return OtelTurn(self.recording, self._run(claimed.run_id, claimed.run.memory), claimed, project)

    def headers_of(self, run_id: str, turn_id: str | None, memory: Mapping[str, Any]) -> dict[str, str]:
        run = self._run(run_id, memory)
        return self.recording.formats.write(run.span(run.root if turn_id is None else span_number(turn_id)))

    def _record_ended(self, run: RunContext, run_id: str, signal: PendingSignal, now: datetime) -> None:
        """Record a turn that the kernel ended, so that its calls have a parent. Its beginning and its cause are unknown here."""
        if signal.name != "agent:failed" or signal.turn_id is None:
            return
        payload = signal.payload if isinstance(signal.payload, dict) else {}
        outcome, error = str(payload.get("outcome")), payload.get("error")
        attributes = {s.OPERATION: s.INVOKE_AGENT, s.AGENT_NAME: str(signal.agent), s.CONVERSATION: run_id, s.TURN_ID: signal.turn_id,
                      s.OUTCOME: outcome}  # fmt: skip
        span = self.recording.spans.start(run, f"{s.INVOKE_AGENT} {signal.agent}", run.root, at=now, number=span_number(signal.turn_id),
                                attributes=attributes)  # fmt: skip
        fail(span, str(error.get("code") or outcome) if isinstance(error, dict) else outcome)
        span.end(nanoseconds(now))

    def _record_run(self, run: RunContext, application: str, run_id: str, reaction: Reaction, now: datetime) -> None:
        attributes = {s.CONVERSATION: run_id, s.APPLICATION: application, s.OUTCOME: reaction.outcome}
        if self.recording.settings.is_experimental:
            attributes |= {s.OPERATION: s.INVOKE_WORKFLOW, s.WORKFLOW_NAME: application}
        span = self.recording.spans.start(run, f"{s.INVOKE_WORKFLOW} {application}", None, at=_started_at(reaction.memory, now), number=run.root,
                                attributes=attributes)  # fmt: skip
        if reaction.outcome not in ("success", "partial"):
            fail(span, str((reaction.memory or {}).get("code") or reaction.outcome))
        span.end(nanoseconds(now))

    def _run(self, run_id: str, memory: Mapping[str, Any]) -> RunContext:
        parent = read_w3c(memory.get(TRACE_PARENT))
        received = memory.get(RECEIVED_TRACE_ID)
        own = (
            received
            if isinstance(received, str) and _TRACE_ID.fullmatch(received)
            else trace_id_of(str(received or run_id))
        )
        trace_id = int(own, 16) if parent is None else parent.trace_id
        sampled = self._sampler.should_sample(
            None if parent is None else in_context(parent), trace_id, s.INVOKE_WORKFLOW
        )
        return RunContext(run_id, trace_id, parent, is_sampled=sampled.decision is Decision.RECORD_AND_SAMPLE)


def _started_at(memory: Mapping[str, Any] | None, default: datetime) -> datetime:
    """The time of the start of a run, from its memory, which may be edited."""
    try:
        return datetime.fromisoformat((memory or {})["started_at"])
    except (KeyError, TypeError, ValueError):
        return default
