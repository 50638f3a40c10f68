"""The tracer of OpenTelemetry: the trace of a run follows from its id, or from the trace of its caller, which its memory keeps."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from opentelemetry.trace import SpanKind, get_current_span

from heliograph.ids import trace_number_of
from heliograph.outbox_records import Callback
from heliograph.ports import TurnTrace
from heliograph.reactive.reaction import Reaction
from heliograph.reactive.run_memory import RECEIVED_TRACE_ID, TRACE_PARENT
from heliograph.records import Claimed, PendingSignal
from heliograph.telemetry import semantics as s
from heliograph.telemetry.null_tracer import NullTurn
from heliograph.telemetry.otel_formats import Formats, read_w3c, written_w3c
from heliograph.telemetry.otel_guard import guarded, nothing
from heliograph.telemetry.otel_records import record_ended, record_enqueue, record_reaction, started_at
from heliograph.telemetry.otel_sampling import Sampling
from heliograph.telemetry.otel_spans import Recording, RunContext, Spans, span_number
from heliograph.telemetry.otel_turn import OtelTurn
from heliograph.telemetry.otel_unrecorded import UnrecordedTurn
from heliograph.telemetry.settings import TelemetrySettings

_CLIENT_ERROR = 400
_CALLERS_MAX = 1024
_TRACE_ID = re.compile(r"(?!0{32})[0-9a-f]{32}")


class OtelTracer:
    """Records the runs and turns of one process. now: the clock of the world."""

    is_on = True

    def __init__(
        self, settings: TelemetrySettings, spans: Spans, sampling: Sampling, now: Callable[[], datetime]
    ):  # fmt: skip
        self.recording = Recording(settings, Formats(settings.propagation), spans, now)
        self._sampling = sampling
        self._caller_of = lru_cache(_CALLERS_MAX)(read_w3c)

    @guarded(dict)
    def memory_of_start(self, headers: Iterable[tuple[bytes, bytes]] | None = None) -> dict[str, Any]:
        caller = get_current_span().get_span_context() if headers is None else self.recording.formats.read(headers)
        return {} if caller is None or not caller.is_valid else {TRACE_PARENT: written_w3c(caller)}

    @guarded(nothing)
    def started(self, application: str, run_id: str, reaction: Reaction) -> None:
        run = self._run(run_id, reaction.memory or {})
        if run.is_sampled:
            now = self.recording.now()
            self.recording.spans.record(run, f"start {application}", run.root, since=started_at(reaction.memory, now), until=now,
                                        kind=SpanKind.PRODUCER, attributes={s.CONVERSATION: run_id, s.APPLICATION: application})  # fmt: skip
            record_reaction(self.recording, run, application, run_id, None, reaction)

    @guarded(nothing)
    def reacted(self, application: str, run_id: str, reaction: Reaction, pending: Sequence[PendingSignal]) -> None:
        run = self._run(run_id, reaction.memory or {})
        if not run.is_sampled:
            return
        for signal in pending:
            record_ended(self.recording, run, run_id, signal, self.recording.now())
        record_reaction(self.recording, run, application, run_id, None, reaction)

    @guarded(nothing)
    def enqueued(self, run_id: str, memory: Mapping[str, Any], agent: str, turn_id: str, began_at: datetime) -> None:
        run, sender = self._run(run_id, memory), get_current_span().get_span_context()
        if not run.is_sampled:
            return
        is_within = sender.is_valid and sender.trace_id == run.trace_id
        record_enqueue(self.recording, run, run_id, agent, turn_id, sender.span_id if is_within else run.root, since=began_at,
                       links=[sender] if sender.is_valid and not is_within else [])  # fmt: skip

    @guarded(NullTurn)
    def turn(self, claimed: Claimed, project: str) -> TurnTrace:
        run = self._run(claimed.run_id, claimed.run.memory)
        if run.is_sampled:
            return OtelTurn(self.recording, run, claimed, project)
        return UnrecordedTurn(self.recording.formats, run, claimed.turn_id)

    @guarded(dict)
    def headers_of(self, run_id: str, turn_id: str | None, memory: Mapping[str, Any]) -> dict[str, str]:
        run = self._run(run_id, memory)
        return self.recording.formats.write(run.span(run.root if turn_id is None else span_number(turn_id)))

    @guarded(nothing)
    def called_back(self, callback: Callback, began_at: datetime, result: Mapping[str, Any]) -> None:
        run = self._run(callback.run_id, callback.trace)
        if not run.is_sampled:
            return
        is_delivered = result["state"] == "delivered"
        self.recording.spans.record(
            run, "POST callback", run.root if callback.turn_id is None else span_number(callback.turn_id), since=began_at,
            until=self.recording.now(), number=span_number(f"{callback.callback_id}/{callback.attempt}"), kind=SpanKind.CLIENT,
            attributes={s.CONVERSATION: callback.run_id, s.CALLBACK_ID: callback.callback_id, s.ATTEMPT: callback.attempt, s.METHOD: "POST",
                        s.SERVER: urlsplit(callback.url).hostname or ""},
            error=None if is_delivered else str(result.get("error") or "").partition(":")[0],
        )  # fmt: skip

    @guarded(nothing)
    def sent(self, url: str, headers: Mapping[str, str], began_at: datetime, attempt: int, status: int | None) -> None:
        call = self.recording.formats.read((key.encode(), value.encode()) for key, value in headers.items())
        if call is None or not call.trace_flags.sampled:
            return
        run = RunContext("", call.trace_id, None, is_sampled=True)
        attributes: dict[str, Any] = {s.METHOD: "POST", s.SERVER: urlsplit(url).hostname or "", s.ATTEMPT: attempt}
        if status is not None:
            attributes[s.STATUS] = status
        is_good = status is not None and status < _CLIENT_ERROR
        self.recording.spans.record(
            run, "POST gateway", call.span_id, since=began_at, until=self.recording.now(), kind=SpanKind.CLIENT, attributes=attributes,
            error=None if is_good else "" if status is None else str(status),
        )  # fmt: skip

    def _run(self, run_id: str, memory: Mapping[str, Any]) -> RunContext:
        """Return the trace of a run. Nothing of it is kept, because most processes ask for a run that is not recorded once."""
        caller, received = memory.get(TRACE_PARENT), memory.get(RECEIVED_TRACE_ID)
        parent = self._caller_of(caller) if isinstance(caller, str) else None
        if parent is not None:
            trace_id = parent.trace_id
        elif received and _TRACE_ID.fullmatch(own := str(received)):
            trace_id = int(own, 16)
        else:
            trace_id = trace_number_of(str(received or run_id))
        return RunContext(run_id, trace_id, parent, is_sampled=self._sampling.records(trace_id, parent))
