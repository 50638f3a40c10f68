"""Fallbacks: steps in place of calls that a circuit breaker or a rate limit rejects. Pure.

The fallback of call `c3` is the recorded step `c3-fallback`. So a turn that continues elsewhere does not call it again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from heliograph.codes import CIRCUIT_OPEN, RATE_LIMITED
from heliograph.error_text import repr_of, safe_repr
from heliograph.errors import InvalidInput
from heliograph.turn.call_id import CALL_ID_MAX, fallback_id, first_id
from heliograph.turn.calls import CallRequest, CallResult, check_name

_NAME = "fallback"
_REJECTIONS = {CIRCUIT_OPEN: "circuit", RATE_LIMITED: "rate"}  # by code: the key that only the error of a rejection has


def with_fallback(request: CallRequest, fallback: Callable[[Any], Any] | None) -> CallRequest:
    """The request with its fallback. Raises InvalidInput (`wrong_type`, `invalid_id`)."""
    if fallback is None:
        return request
    if not callable(fallback):
        raise InvalidInput(f"the fallback of {request.tool} must be a function, not {safe_repr(repr_of(fallback))}", code="wrong_type",
                           path="/fallback")  # fmt: skip
    check_name(fallback_id(request.call_id), "the call id of a fallback", CALL_ID_MAX)
    return replace(request, fallback=fallback)


def is_replaced(request: CallRequest, result: CallResult) -> bool:
    """Whether the fallback is called in place of this call."""
    error = result.error or {}
    return request.fallback is not None and any(
        error.get("code") == code and key in error for code, key in _REJECTIONS.items()
    )


def fallback_step(request: CallRequest) -> CallRequest:
    """The step that runs the fallback of a call, within its timeout."""
    call_id, step_id = first_id(request.call_id, request.attempt), first_id(request.step_id, request.attempt)
    return CallRequest(fallback_id(call_id), fallback_id(step_id), _NAME, "inline", timeout_seconds=request.timeout_seconds,
                       effect="idempotent")  # fmt: skip
