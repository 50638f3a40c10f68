"""The meaning of a gateway's response for the call that waits for it: a result, a failure, or another attempt. Pure."""

from __future__ import annotations

from typing import Any

from heliograph.codes import DELEGATION_ERROR, TOOL_ERROR
from heliograph.control.envelope import read_envelope
from heliograph.control.partial_results import with_outcome
from heliograph.control.payloads import DelegationResponsePayload, Failure, ToolCallResponsePayload
from heliograph.errors import InvalidInput
from heliograph.signals.json_parser import parse_json
from heliograph.types import JsonObject

_TEMPORARY = (408, 425, 429)
_MESSAGE_MAX = 2000
_CODE_CHARACTERS_MAX = 200


class _NoEnd(Exception):
    """A response does not state the end of the task. reason: the code with which the gateway rejected the request."""

    def __init__(self, message: str, reason: str | None = None):
        self.message = message
        self.reason = reason


def report_of(request: JsonObject, status: int, body: bytes | None, *, is_first: bool) -> JsonObject | None:
    """Return the result of a call for its report: {status, result} or {status, error}; None to send the request again.

    The report of a call whose task may still run at the gateway has `may_still_run`, so that the kernel writes its halt.
    request: the envelope that was sent. body: None if the response was too large. is_first: no earlier request of this call can have
    started the task.
    """
    signal: Any = request["envelope"]["signal"]  # type: ignore[index,call-overload]  # this process has built it
    code = TOOL_ERROR if signal["type"] == "tool_call" else DELEGATION_ERROR
    if status == 202 or status in _TEMPORARY or status >= 500:
        return None
    try:
        payload = _read_response(signal, status, body)
    except _NoEnd as error:
        details: JsonObject = {"status": status} | ({} if error.reason is None else {"reason": error.reason})
        report = _failed(code, error.message, details)
        return report if is_first and status >= 300 else {**report, "may_still_run": True}
    if _is_open(payload):
        return None
    if payload.error is not None:
        return {"status": "failed", "error": _error_of(code, payload.error)}
    if isinstance(payload, DelegationResponsePayload) and payload.status == "failed":
        return _failed(code, "the task failed without an error", {"status": status})
    if isinstance(payload, ToolCallResponsePayload):
        return {"status": "success", "result": payload.result}
    is_partial = (payload.details or {}).get("outcome") == "partial"
    return {"status": "success", "result": with_outcome(payload.result, is_partial=is_partial)}


def _read_response(
    request: Any, status: int, body: bytes | None
) -> DelegationResponsePayload | ToolCallResponsePayload:
    """Read the response to the signal of a request. Raises _NoEnd."""
    if body is None:
        raise _NoEnd("the response of the gateway is too large")
    try:
        parsed = parse_json(body)
        if status != 200:
            raise _rejection(status, parsed)
        payload = read_envelope(parsed).signal.payload
    except InvalidInput as error:
        raise _NoEnd(f"the response of the gateway with status {status} is malformed: {error.message}") from None
    if not isinstance(payload, DelegationResponsePayload | ToolCallResponsePayload) or (
        payload.correlation_id != request["payload"]["correlation_id"]
    ):
        raise _NoEnd("the gateway sent the response to another request")
    if not _is_open(payload) and isinstance(payload, ToolCallResponsePayload) != (request["type"] == "tool_call"):
        raise _NoEnd(f"the gateway ended a {request['type']} with the response to a signal of another type")
    return payload


def _is_open(payload: DelegationResponsePayload | ToolCallResponsePayload) -> bool:
    """Whether the task has not ended. Gateways also report this of a tool call in a delegation_response."""
    return isinstance(payload, DelegationResponsePayload) and payload.status in ("accepted", "in_progress")


def _rejection(status: int, body: Any) -> _NoEnd:
    error = body.get("error") if isinstance(body, dict) else None
    error = error if isinstance(error, dict) else {}
    given, message = error.get("code"), str(error.get("message") or "no message")
    reason = given if isinstance(given, str) and _is_code(given) else "rejected"
    return _NoEnd(f"the gateway rejected the request with status {status}: {message}", reason)


def _error_of(code: str, error: Failure) -> JsonObject:
    """The error of a failed task, with `code` in place of a code that is no name."""
    return error.to_wire() if _is_code(error.code) else {**error.to_wire(), "code": code}


def _is_code(text: str) -> bool:
    return 0 < len(text) <= _CODE_CHARACTERS_MAX and text.isprintable()


def _failed(code: str, message: str, details: JsonObject) -> JsonObject:
    error: JsonObject = {"code": code, "message": message[:_MESSAGE_MAX], "recoverable": False, "details": details}
    return {"status": "failed", "error": error}
