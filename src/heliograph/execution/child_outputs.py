"""The outputs of delegations, as the types that their agents declare."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pydantic

from heliograph.codes import RESULT_SCHEMA
from heliograph.definitions.forms import adapter_of
from heliograph.error_text import safe_repr
from heliograph.errors import DelegationFailed
from heliograph.execution.call_replay import CallReplay, value_of
from heliograph.turn.calls import CallRequest, CallResult

_MESSAGE_MAX = 2000


async def delegated(replay: CallReplay, request: CallRequest, kind: Any) -> Any:
    """The output of a child as a `kind`. Raises DelegationFailed, also for an output of another type, and Suspended."""
    [result] = await replay.all([request])
    return _output(request, result, kind)


async def mapped(replay: CallReplay, requests: Sequence[CallRequest], limit: int | None, kind: Any) -> list[Any]:
    """The outputs of all children, each as a `kind`. Raises DelegationFailed for the first that failed, and Suspended."""
    results = await replay.until_failure(requests, limit)
    return [
        _output(request, result, kind) for request, result in zip(requests, results, strict=False) if result is not None
    ]


def _output(request: CallRequest, result: CallResult, kind: Any) -> Any:
    value = value_of(request, result)
    if kind is Any:
        return value
    try:
        return adapter_of(f"the output of {request.tool}", kind, "/agent").validate_python(value)
    except pydantic.ValidationError as error:
        message = safe_repr(
            f"the output of agent {request.tool} (call {request.call_id}) does not match its type: {error}",
            _MESSAGE_MAX,
        )
        raise DelegationFailed(message, agent=request.tool, call_id=request.call_id, outcome=result.status,
                               error={"code": RESULT_SCHEMA, "message": message}) from None  # fmt: skip
