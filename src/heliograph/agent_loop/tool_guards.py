"""Apply the timeout, retries, circuit breaker, rate limit and fallback of a tool to its calls; the narrowest setting counts."""

from __future__ import annotations

import copy
from typing import Any

from msgspec.structs import replace

from heliograph.definitions.circuit_breakers import breaker_among
from heliograph.definitions.rate_limits import rates_of
from heliograph.execution.owned_turn import OwnedTurn
from heliograph.execution.step_outcome import invoke
from heliograph.policy.retry import narrowest
from heliograph.signals.values import to_json
from heliograph.tools.bound_tool import BoundTool
from heliograph.turn.call_results import check_result
from heliograph.turn.calls import CallRequest, Fallback
from heliograph.turn.fallbacks import with_fallback
from heliograph.turn.retries import check_retry_id


def guarded(owned: OwnedTurn, bound: BoundTool, request: CallRequest) -> CallRequest:
    """Return the request with the settings of its tool, of the agent and of the application. Raises InvalidInput (`invalid_id`)."""
    tool, settings = bound.tool, owned.workflow.tool_calls[owned.spec.name]
    return with_fallback(check_retry_id(replace(
        request,
        timeout_seconds=settings.timeout_of(tool.timeout_seconds),
        retry=narrowest(tool.retry_policy, settings.retry),
        circuit_breaker=breaker_among(tool.breaker, settings.circuit_breaker),
        rates=rates_of("tool", tool.name, tool.limit, settings.rate_limit),
    )), _fallback_of(owned, bound, request))  # fmt: skip


def _fallback_of(owned: OwnedTurn, bound: BoundTool, request: CallRequest) -> Fallback | None:
    """The fallback of one call: it receives the arguments of the call, and its result has to match the schema of the tool."""
    tool = bound.tool
    if tool.fallback is None:
        return None

    async def call(error: Any) -> Any:
        assert tool.fallback is not None
        result = await invoke(owned.world, tool.fallback, (error, copy.deepcopy(request.input)))
        return (
            result if bound.output_problems is None else check_result(tool.name, bound.output_problems, to_json(result))
        )

    return call
