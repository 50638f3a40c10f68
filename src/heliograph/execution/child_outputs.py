"""The outputs of calls and delegations, as the types that their authors declare."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pydantic
from msgspec.structs import replace

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


async def typed_results(
    replay: CallReplay, requests: Sequence[CallRequest], limit: int | None, kinds: Sequence[Any]
) -> list[CallResult[Any]]:
    """The results of several calls, their outputs as `kinds`; one that does not match is a failure with the code `result_schema`."""
    found = await replay.all(requests, limit)
    return [_typed(*each) for each in zip(requests, found, kinds, strict=True)]


async def typed_each(
    results: AsyncIterator[tuple[int, CallResult[Any]]], requests: Sequence[CallRequest], kinds: Sequence[Any]
) -> AsyncIterator[CallResult[Any]]:
    """Yield the results of several calls, as `typed_results` returns them."""
    async for n, result in results:
        yield _typed(requests[n], result, kinds[n])


def _typed(request: CallRequest, result: CallResult[Any], kind: Any) -> CallResult[Any]:
    if kind is Any or not result.is_good:
        return result
    try:
        output = adapter_of(f"the output of {request.tool}", kind, "/agent").validate_python(result.output)
    except pydantic.ValidationError as error:
        message = safe_repr(f"the output of {request.tool} does not match its type: {error}", _MESSAGE_MAX)
        return CallResult(
            result.call_id, "failed", None, {"code": RESULT_SCHEMA, "message": message, "recoverable": False}
        )
    return replace(result, output=output)


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
