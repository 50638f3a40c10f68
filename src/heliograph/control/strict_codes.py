"""Signals for systems that know only the codes of the specification: each other code becomes one of these, and the reason."""

from __future__ import annotations

from heliograph.codes import (
    BUDGET_EXCEEDED,
    CIRCUIT_OPEN,
    CODE_OF_PHASE,
    DELEGATION_ERROR,
    MODEL_TIMEOUT,
    RATE_LIMITED,
    RESOURCE_EXHAUSTED,
    SPECIFIED_CODES,
    TIMEOUT,
    TOOL_ERROR,
    UNKNOWN,
)
from heliograph.control.envelope import Envelope
from heliograph.control.payloads import (
    DelegationResponsePayload,
    ErrorPayload,
    Failure,
    Payload,
    ToolCallResponsePayload,
)

_NEAREST = {BUDGET_EXCEEDED: RESOURCE_EXHAUSTED, MODEL_TIMEOUT: TIMEOUT}


def strict_envelope(envelope: Envelope) -> Envelope:
    """Return an envelope whose codes are those of the specification. `details.reason` of an error has the original code."""
    signal = envelope.signal
    payload = _strict(signal.payload)
    if payload is signal.payload:
        return envelope
    return envelope.model_copy(update={"signal": signal.model_copy(update={"payload": payload})})


def _strict(payload: Payload) -> Payload:
    match payload:
        case ErrorPayload() if payload.code not in SPECIFIED_CODES:
            return payload.model_copy(update=_replaced(payload, _code_of_error(payload)))
        case ToolCallResponsePayload() | DelegationResponsePayload() if payload.error is not None:
            error = payload.error
            default = TOOL_ERROR if isinstance(payload, ToolCallResponsePayload) else DELEGATION_ERROR
            if error.code not in SPECIFIED_CODES:
                failure = error.model_copy(update=_replaced(error, _NEAREST.get(error.code, default)))
                return payload.model_copy(update={"error": failure})
    return payload


def _code_of_error(payload: ErrorPayload) -> str:
    """Return the code for an `error`: of a call that was not made, or of the phase in which it happened."""
    phase = str((payload.details or {}).get("phase", "act"))
    if payload.code in (RATE_LIMITED, CIRCUIT_OPEN) and phase == "act":
        return TOOL_ERROR
    return _NEAREST.get(payload.code, CODE_OF_PHASE.get(phase, UNKNOWN))


def _replaced(failure: Failure, code: str) -> dict[str, object]:
    return {"code": code, "details": {**(failure.details or {}), "reason": failure.code}}
