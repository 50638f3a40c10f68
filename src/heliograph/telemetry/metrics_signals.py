"""Record the metrics of signals, model calls and turns, as the worker that runs these turns sees them.

Every signal that a kernel call of this worker logs is counted after that call. The kernel itself logs the results of calls that end
while no worker owns the turn; the worker that continues the turn counts these. The worker of a halted turn counts the halt. Nobody counts
the signals of a turn that the kernel ends while no worker runs it. A latency needs both ends, so a call that another
worker opened is counted without one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

from heliograph.codes import CODE_NAMES, DELEGATION_ERROR, DELEGATION_TIMEOUT, TOOL_ERROR
from heliograph.control.run_log import CODES_OF_STATUS, LOG_NAMES
from heliograph.control.signals import TYPES
from heliograph.records import Claimed, Wait
from heliograph.signals.model import Draft
from heliograph.telemetry.metrics import Registry
from heliograph.telemetry.metrics_names import (
    CLAIMED,
    DURATION,
    ENDED,
    MODEL_DURATION,
    MODEL_TOKENS,
    SIGNAL_COUNT,
    SIGNAL_ERRORS,
    SIGNAL_LATENCY,
    STARTED,
)
from heliograph.turn.phases import Phase

RESERVED = {"signal_type": tuple(TYPES), "error_code": CODE_NAMES}  # of `Registry`
OPEN_CALLS_MAX = 10_000  # whose start is remembered; the oldest are forgotten first
SENT = "sent"  # the status of a signal that has none of its own
_REQUESTS = {"tool_call": "tool_call_response", "delegation": "delegation_response"}
_WAITS = ("tool", "human", "child")
_MODEL_CALL, _CHAT = "model call", "chat"


class TurnMetrics:
    """The metrics of one worker's turns. now: the clock of their signals."""

    def __init__(self, registry: Registry, now: Callable[[], datetime]):
        self.registry = registry
        self._now = now
        self._opened: OrderedDict[tuple[str, str], tuple[str, datetime]] = (
            OrderedDict()
        )  # type or model, and start, by turn and call

    def claimed(self, claimed: Claimed) -> None:
        """Count a claim, and the results that arrived while no worker owned the turn."""
        self.registry.add(CLAIMED, claimed.agent)
        is_resumed = claimed.attempts == 0
        for wait in claimed.waits:
            if self._is_result(claimed.turn_id, wait, is_resumed and wait.epoch == claimed.epoch - 1):
                self._waited(claimed.turn_id, wait)

    def resolved(self, turn_id: str, waits: Iterable[Wait]) -> None:
        """Count the results that arrived before the turn was suspended for them."""
        for wait in waits:
            if self._is_result(turn_id, wait, is_new=False):
                self._waited(turn_id, wait)

    def logged(self, turn_id: str, drafts: Sequence[Draft]) -> None:
        """Count the signals of a commit."""
        for draft in drafts:
            if not isinstance(draft.payload, dict):
                continue
            at = draft.at or self._now()
            if (kind := LOG_NAMES.get(draft.name)) is not None:
                self._count(turn_id, kind, draft.payload, at)
            elif draft.name == "harness:start":
                self._open(turn_id, _MODEL_CALL, str(draft.payload.get("model")), at)
            elif draft.name in ("harness:end", "harness:error"):
                self._end_model_call(turn_id, draft.payload, at)

    def phase(self, agent: str, phase: Phase, duration_ms: int | None) -> None:
        """Count the start of a phase, or its duration at its end."""
        if duration_ms is None:
            self.registry.add(STARTED[phase], agent)
        else:
            self.registry.observe(DURATION[phase], duration_ms, agent)

    def halted(self) -> None:
        """Count a halt that this worker obeys. The kernel has logged its signal."""
        self.registry.add(SIGNAL_COUNT, "halt", SENT)

    def ended(self, agent: str, outcome: str) -> None:
        """Count the end of a turn."""
        self.registry.add(ENDED, agent, outcome)

    def _is_result(self, turn_id: str, wait: Wait, is_new: bool) -> bool:
        """Whether a call outside this worker has a result that is not counted yet. is_new: its result is not older than this claim."""
        is_over = wait.kind in _WAITS and wait.state == "resolved"
        return is_over and (is_new or (turn_id, wait.call_id) in self._opened)

    def _waited(self, turn_id: str, wait: Wait) -> None:
        kind = "delegation" if wait.kind == "child" else "tool_call"
        error = wait.content.get("error") if isinstance(wait.content, dict) else None
        self._respond(turn_id, wait.call_id, kind, wait.status or SENT, error, self._now())

    def _count(self, turn_id: str, kind: str, payload: dict[str, Any], at: datetime) -> None:
        status = payload.get("status")
        if kind in _REQUESTS:
            self._open(turn_id, str(payload.get("id")), kind, at)
            self.registry.add(SIGNAL_COUNT, kind, SENT)
        elif kind == "tool_call_response":
            self._respond(turn_id, str(payload.get("id")), "tool_call", str(status), payload.get("error"), at)
        elif kind == "error":
            self.registry.add(SIGNAL_COUNT, kind, "recoverable" if payload.get("recoverable") else "unrecoverable")
            self.registry.add(SIGNAL_ERRORS, kind, str(payload.get("error_code")))
        else:
            self.registry.add(SIGNAL_COUNT, kind, status if isinstance(status, str) else SENT)

    def _end_model_call(self, turn_id: str, payload: dict[str, Any], at: datetime) -> None:
        """Count a model call. The model is that of the turn's last start: the calls of a turn follow each other."""
        if (call := self._opened.pop((turn_id, _MODEL_CALL), None)) is None:
            return
        usage, code = payload.get("usage"), payload.get("code", "")
        self.registry.observe(MODEL_DURATION, _seconds(call[1], at), _CHAT, call[0], str(code))
        for kind in ("input", "output"):
            tokens = usage.get(f"{kind}Tokens") if isinstance(usage, dict) else None
            if isinstance(tokens, int | float):
                self.registry.observe(MODEL_TOKENS, tokens, _CHAT, call[0], kind)

    def _open(self, turn_id: str, call_id: str, kind: str, at: datetime) -> None:
        self._opened[turn_id, call_id] = kind, at
        if len(self._opened) > OPEN_CALLS_MAX:
            self._opened.popitem(last=False)

    def _respond(self, turn_id: str, call_id: str, kind: str, status: str, error: Any, at: datetime) -> None:
        """Count a response, the latency of its request, and its error."""
        request = self._opened.pop((turn_id, call_id), None)
        if request is not None:
            kind = request[0]  # a delegation through a gateway ends like a tool call
        is_success, default = status == "success", CODES_OF_STATUS.get(status, TOOL_ERROR)
        if kind == "delegation":
            default = DELEGATION_TIMEOUT if status == "timeout" else DELEGATION_ERROR
            status = "completed" if is_success else "failed"
        if request is not None:
            self.registry.observe(SIGNAL_LATENCY, 1000 * _seconds(request[1], at), kind, status)
        self.registry.add(SIGNAL_COUNT, _REQUESTS[kind], status)
        if not is_success:
            code = error.get("code") if isinstance(error, dict) else None
            self.registry.add(SIGNAL_ERRORS, kind, str(code or default))


def _seconds(begin: datetime, end: datetime) -> float:
    """The time between two signals; 0 if the clock has gone back."""
    return max(0.0, (end - begin).total_seconds())
