"""The responses of a gateway: the response envelope of a task, and the HTTP status of an error. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from heliograph.codes import TOOL_ERROR, TOOL_TIMEOUT
from heliograph.control.envelope import Envelope
from heliograph.control.expressions import uuid_from
from heliograph.control.run_log import delegation_response, failure_of
from heliograph.control.signals import read_signal
from heliograph.errors import HeliographError, InvalidInput, NotFound, StoreUnavailable
from heliograph.gateway.received import correlation_id_of
from heliograph.ledger.rows import TurnRow
from heliograph.turn.deliverable import read_output
from heliograph.types import JsonObject

RESULT_PRUNED = "result_pruned"
_STATUSES = {
    "bad_signature": 401, "method_not_allowed": 405, "request_timeout": 408, "payload_too_large": 413, "unsupported_media_type": 415, "agent_busy": 429,
    "queue_full": 429, RESULT_PRUNED: 410, "id_conflict": 409, "unsupported_signal": 422,
}  # fmt: skip


def is_ended(turn: TurnRow) -> bool:
    return turn.status == "done"


def response_to(request: Envelope, turn: TurnRow, content: Any, now: datetime) -> Envelope:
    """Return the response to a request: the end of its turn, or its status.

    content: the turn's deliverable. The response to a repeated request is the same, because the turn and the request determine it.
    """
    kind = "tool_call_response" if request.signal.type == "tool_call" and is_ended(turn) else "delegation_response"
    payload = _ended_tool(turn, content) if kind == "tool_call_response" else _delegation(turn, content)
    step = turn.outcome if is_ended(turn) else turn.status
    return Envelope(
        id=uuid_from(f"{turn.turn_id}/{step}"), timestamp=turn.finished_at or now, source=turn.agent, destination=request.source,
        trace_id=request.trace_id, span_id=request.span_id,
        signal=read_signal({"type": kind, "payload": {**payload, "correlation_id": correlation_id_of(request)}}),
    )  # fmt: skip


def status_of(error: HeliographError) -> int:
    """Return the HTTP status of an error that a gateway reports."""
    if isinstance(error, StoreUnavailable):
        return 503
    if error.code in _STATUSES:
        return _STATUSES[error.code]
    if isinstance(error, NotFound):
        return 404
    return 400 if isinstance(error, InvalidInput) else 403


def _delegation(turn: TurnRow, content: Any) -> JsonObject:
    head: JsonObject = {"target_agent": turn.agent, "task_id": turn.turn_id}
    if not is_ended(turn):
        return {**head, "status": "accepted" if turn.status in ("queued", "dispatched") else "in_progress"}
    is_good = turn.outcome in ("success", "partial")
    end: JsonObject = {"result": read_output(content)} if is_good else {"error": content.get("error")}
    return delegation_response({**head, **end, "status": "completed" if is_good else "failed", "outcome": turn.outcome,
                                "duration_ms": _duration_ms(turn)})  # fmt: skip


def _ended_tool(turn: TurnRow, content: Any) -> JsonObject:
    # A tool whose plan ended as partial was skipped, or has no result yet.
    is_good = turn.outcome == "success"
    head: JsonObject = {"tool_name": turn.agent, "success": is_good, "duration_ms": _duration_ms(turn)}
    if is_good:
        return {**head, "result": read_output(content)}
    code = TOOL_TIMEOUT if turn.outcome == "timeout" else TOOL_ERROR
    return {**head, "error": failure_of(content.get("error"), code, f"the turn ended as {turn.outcome}")}


def _duration_ms(turn: TurnRow) -> int:
    assert turn.finished_at is not None
    return max(0, round((turn.finished_at - turn.created_at).total_seconds() * 1000))
