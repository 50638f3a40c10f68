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


def report_of(request: JsonObject, status: int, body: bytes | None) -> JsonObject | None:
    """Return the result of a call for its report: {status, result} or {status, error}; None to send the request again.

    request: the envelope that was sent. body: None if the response was too large.
    """
    signal: Any = request["envelope"]["signal"]  # type: ignore[index,call-overload]  # this process has built it
    code = TOOL_ERROR if signal["type"] == "tool_call" else DELEGATION_ERROR
    if status == 202 or status in _TEMPORARY or status >= 500:
        return None
    if body is None:
        return _failed(code, "the response of the gateway is too large", {"status": status})
    try:
        parsed = parse_json(body)
        if status != 200:
            return _rejected(code, status, parsed)
        payload = read_envelope(parsed).signal.payload
    except InvalidInput as error:
        return _failed(
            code, f"the response of the gateway with status {status} is malformed: {error.message}", {"status": status}
        )
    if not isinstance(payload, DelegationResponsePayload | ToolCallResponsePayload) or (
        payload.correlation_id != signal["payload"]["correlation_id"]
    ):
        return _failed(code, "the gateway sent the response to another request", {"status": status})
    if payload.error is not None:
        return {"status": "failed", "error": _error_of(code, payload.error)}
    if isinstance(payload, DelegationResponsePayload) and payload.status != "completed":
        return (
            None
            if payload.status != "failed"
            else _failed(code, "the task failed without an error", {"status": status})
        )
    if isinstance(payload, ToolCallResponsePayload):
        return {"status": "success", "result": payload.result}
    is_partial = (payload.details or {}).get("outcome") == "partial"
    return {"status": "success", "result": with_outcome(payload.result, is_partial=is_partial)}


def _rejected(code: str, status: int, body: Any) -> JsonObject:
    error = body.get("error") if isinstance(body, dict) else None
    error = error if isinstance(error, dict) else {}
    given, message = error.get("code"), str(error.get("message") or "no message")
    reason = given if isinstance(given, str) and _is_code(given) else "rejected"
    return _failed(
        code, f"the gateway rejected the request with status {status}: {message}", {"status": status, "reason": reason}
    )


def _error_of(code: str, error: Failure) -> JsonObject:
    """The error of a failed task, with `code` in place of a code that is no name."""
    return error.to_wire() if _is_code(error.code) else {**error.to_wire(), "code": code}


def _is_code(text: str) -> bool:
    return 0 < len(text) <= _CODE_CHARACTERS_MAX and text.isprintable()


def _failed(code: str, message: str, details: JsonObject) -> JsonObject:
    error: JsonObject = {"code": code, "message": message[:_MESSAGE_MAX], "recoverable": False, "details": details}
    return {"status": "failed", "error": error}
