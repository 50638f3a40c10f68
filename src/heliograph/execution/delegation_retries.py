"""Delegate to several children and retry those that fail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput
from heliograph.execution.call_replay import CallReplay
from heliograph.execution.call_requests import CallRequests
from heliograph.turn.call_id import CALL_ID_MAX, retry_id
from heliograph.turn.calls import CallRequest, CallResult, Delegation, check_name

RETRIES_MAX = 100


def check_retries(delegations: Sequence[Delegation], retries: int) -> None:
    """Raises InvalidInput (`out_of_range`, `wrong_type`)."""
    if isinstance(retries, bool) or not isinstance(retries, int) or not 0 <= retries <= RETRIES_MAX:
        raise InvalidInput(f"retries must be from 0 to {RETRIES_MAX}, not {safe_repr(retries)}", code="out_of_range")
    for delegation in delegations:
        if not isinstance(delegation, Delegation):
            raise InvalidInput(
                f"the argument of delegates must be a list of Delegation, not {safe_repr(delegation)}",
                code="wrong_type",
            )


def check_retry_ids(requests: Sequence[CallRequest], retries: int) -> None:
    """Raises InvalidInput (`invalid_id`) for a call id that leaves no room for the number of a retry."""
    for each in requests if retries else ():
        check_name(retry_id(each.call_id, retries), "the call id of a delegation that is retried", CALL_ID_MAX)


async def delegate_with_retries(
    replay: CallReplay, builder: CallRequests, delegations: Sequence[Delegation], requests: list[CallRequest],
    retries: int, *, fail_fast: bool, overall_seconds: float | None,
) -> list[CallResult]:  # fmt: skip
    """The results after at most `retries` more rounds. Only recorded results decide a retry, so replays repeat it."""
    results = await replay.all(requests)
    for count in range(1, retries + 1):
        places = [n for n, result in enumerate(results) if _may_retry(result, delegations[n], overall_seconds)]
        if not places:
            break
        retried = [replace(delegations[n], call_id=retry_id(requests[n].call_id, count)) for n in places]
        round_results = await replay.all(builder.fork(retried, fail_fast=fail_fast, timeout=overall_seconds))
        for n, result in zip(places, round_results, strict=True):
            results[n] = result
    return results


def _may_retry(result: CallResult, delegation: Delegation, overall: float | None) -> bool:
    """Children that someone stopped, or that hit the overall timeout, are not retried."""
    if result.status == "timeout":
        return delegation.timeout is not None and (overall is None or delegation.timeout < overall)
    return result.status == "failed" or (result.status == "canceled" and "first_failed_call" in (result.error or {}))
