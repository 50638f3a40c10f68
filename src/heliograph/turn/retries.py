"""The retries of calls: each attempt and each pause between attempts is a recorded call of the turn. Pure.

| id           | names                                          |
|--------------|------------------------------------------------|
| `c3`         | the first attempt                              |
| `c3-pause-1` | the timer between the first attempt and the second |
| `c3-again-1` | the second attempt                             |

Only recorded results decide. So a turn that continues on another worker neither loses an attempt nor makes an extra one.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from heliograph.codes import BUDGET_EXCEEDED, TOOL_ERROR
from heliograph.policy.retry import SECONDS_MAX
from heliograph.turn.call_id import CALL_ID_MAX, first_id, instance_of, pause_id, retry_id
from heliograph.turn.calls import CallRequest, CallResult, check_name
from heliograph.turn.fallbacks import is_replaced
from heliograph.types import JsonObject

_PAUSE_SECONDS_LEAST = 0.001


def check_retry_id(request: CallRequest) -> CallRequest:
    """Raise InvalidInput (`invalid_id`) for a call id that leaves no room for the number of a retry."""
    if request.retry is not None:
        check_name(
            retry_id(request.call_id, request.retry.retries), "the call id of a call that is retried", CALL_ID_MAX
        )
    return request


def delays_of(attempts: Sequence[tuple[CallRequest, CallResult | None]], turn_id: str) -> dict[int, float]:
    """The calls that are made again, by their places, and the seconds until then.

    attempts: the newest attempts of calls that were made together, with their results. A call that was canceled because
    another one failed first is made again with that one. If one call of a step that fails fast has failed for good, none is.
    """
    delays = {
        n: seconds for n, (request, result) in enumerate(attempts)
        if result is not None and (seconds := delay_of(request, result, turn_id)) is not None
    }  # fmt: skip
    again = {attempts[n][0].call_id for n in delays}
    for n, (request, result) in enumerate(attempts):
        if result is None or result.is_good or n in delays:
            continue
        if request.retry is not None and (result.error or {}).get("first_failed_call") in again:
            delays[n] = _delay(request, turn_id, 0.0)
        elif request.fails_fast and not is_replaced(request, result):
            return {}
    return delays


def delay_of(request: CallRequest, result: CallResult, turn_id: str) -> float | None:
    """The seconds until the next attempt of a call; None if it is not made again.

    A call with effect `once` is made again only if it is certain that the attempt failed.
    """
    policy = request.retry
    if policy is None or request.attempt > policy.retries or result.status not in ("failed", "timeout"):
        return None
    if result.status == "timeout" and (request.effect == "once" or request.has_shared_deadline):
        return None
    error = result.error or {}
    if error.get("code") == BUDGET_EXCEEDED:  # it was not made
        return None
    if not policy.allows(str(error.get("code") or TOOL_ERROR), is_recoverable=error.get("recoverable") is not False):
        return None
    return _delay(request, turn_id, _retry_after_seconds(error))


def next_attempt(request: CallRequest, turn_id: str) -> CallRequest:
    """The request of the next attempt. A child without a named instance gets a new instance."""
    call_id, step_id = first_id(request.call_id, request.attempt), first_id(request.step_id, request.attempt)
    again = retry_id(call_id, request.attempt)
    instance = request.instance
    if instance == instance_of(turn_id, request.call_id):
        instance = instance_of(turn_id, again)
    return replace(request, call_id=again, step_id=retry_id(step_id, request.attempt), attempt=request.attempt + 1,
                   instance=instance)  # fmt: skip


def pause_before(attempt: CallRequest, seconds: float) -> CallRequest:
    """The timer before a repeated attempt."""
    length = max(seconds, _PAUSE_SECONDS_LEAST)
    call_id = pause_id(first_id(attempt.call_id, attempt.attempt), attempt.attempt - 1)
    step_id = pause_id(first_id(attempt.step_id, attempt.attempt), attempt.attempt - 1)
    return CallRequest(call_id, step_id, "timer", "timer", {"seconds": length}, length, "pure")


def final_result(request: CallRequest, result: CallResult) -> CallResult:
    """The result of a call after its last attempt. The details of an error contain the number of retries."""
    if request.retry is None or result.is_good:
        return result
    error: JsonObject = result.error or {}
    given = error.get("details")
    details: JsonObject = given if isinstance(given, dict) else {}
    counts: JsonObject = {"retry_count": request.attempt - 1, "max_retries": request.retry.retries}
    return replace(result, error={**error, "details": {**details, **counts}})


def _delay(request: CallRequest, turn_id: str, retry_after_seconds: float) -> float:
    assert request.retry is not None
    key = f"{turn_id}/{first_id(request.call_id, request.attempt)}"
    return request.retry.delay_seconds(request.attempt, key, retry_after_seconds)


def _retry_after_seconds(error: JsonObject) -> float:
    details = error.get("details")
    given = details.get("retry_after_ms") if isinstance(details, dict) else None
    # compared before it is divided: an integer may be too large for a float
    return (
        min(given, 1000 * SECONDS_MAX) / 1000 if isinstance(given, int | float) and not isinstance(given, bool) else 0.0
    )
