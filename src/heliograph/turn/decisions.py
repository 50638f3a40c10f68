"""How a turn starts, and how it goes on after a failed model call or a rejected suspension. Pure."""

from __future__ import annotations

from heliograph.codes import CANCELED, INIT_FAILED, RESOURCE_EXHAUSTED
from heliograph.definitions.agent import AgentSpec
from heliograph.error_text import format_exception, is_recoverable, safe_repr
from heliograph.errors import HarnessError, HeliographError
from heliograph.policy.retry import backoff_seconds, jitter_of
from heliograph.records import Claimed, WriteResult
from heliograph.turn.events import DeferTurn, Event, Hydrated, Raised, Resolved
from heliograph.turn.interruptions import DELAY_SECONDS_MAX
from heliograph.turn.terminating_calls import awaits_terminating, terminating_result

_REASON_MAX = 500


def first_event(claimed: Claimed, spec: AgentSpec) -> Hydrated | Raised:
    """The first event of a claimed turn. A turn without a message in its inbox is rejected."""
    is_resumed = claimed.defer_count > 0 or any(w.kind != "inline" or w.state == "resolved" for w in claimed.waits)
    if not is_resumed and not any(row.message_type in ("turn", "ui_action") for row in claimed.inbox):
        return Raised("failed", INIT_FAILED, "protocol error: the inbox holds no message for this turn")
    return Hydrated(
        recoveries=claimed.attempts,
        may_run_again=spec.effect != "once",
        # turns that acted before their run began to end still end their own way, and so do their children
        is_run_over=claimed.run.status != "running" and not is_resumed and claimed.parent_turn_id is None,
        is_resumed=is_resumed,
        terminating_result=terminating_result(claimed.waits),
        awaits_terminating=awaits_terminating(claimed.waits),
    )


def after_suspension(result: WriteResult, claimed: Claimed, spec: AgentSpec) -> Event | None:
    """The next event after the kernel answered a suspension; None where the turn is suspended or has ended."""
    if result.outcome == "resolved":
        return Resolved(terminating_result(result.waits), awaits_terminating(result.waits))
    if result.outcome != "rejected":
        return None
    if result.code == "run_stopping":
        return Raised("canceled", CANCELED, result.message)
    if (
        result.code == "queue_full" and claimed.defer_count < spec.retries
    ):  # the queue of a child agent drains with time
        delay = _delay_seconds(claimed, claimed.defer_count + 1)
        return DeferTurn(safe_repr(str(result.message), _REASON_MAX), delay, spec.retries)
    return Raised("failed", RESOURCE_EXHAUSTED, f"the turn may not wait: {result.message}")


def deferral_after(
    error: BaseException, claimed: Claimed, spec: AgentSpec, deferrals_before: int, phase: str = "act", code: str = ""
) -> DeferTurn | None:
    """The deferral of a turn whose model or phase may succeed later; None where the turn fails.

    deferrals_before: the deferrals before the agent last made progress; the limits count from there. code: of the error.
    """
    at_most = deferrals_before + _retries(error, spec, phase, code)
    if claimed.defer_count >= at_most:
        return None
    reason = error.message if isinstance(error, HeliographError) else format_exception(error, _REASON_MAX)
    retry_after = error.retry_after_seconds if isinstance(error, HarnessError) else 0.0
    delay = max(_delay_seconds(claimed, claimed.defer_count - deferrals_before + 1), retry_after)
    return DeferTurn(safe_repr(reason, _REASON_MAX), min(delay, DELAY_SECONDS_MAX), at_most)


def _retries(error: BaseException, spec: AgentSpec, phase: str, code: str) -> int:
    """How often a phase that failed with this error is repeated."""
    if spec.hooks and code in spec.lifecycle.error_retries:
        return spec.lifecycle.error_retries[code]
    if isinstance(error, HarnessError):
        return spec.retries if error.recoverable else 0
    return spec.lifecycle.init_retries if phase == "init" and is_recoverable(error) else 0


def _delay_seconds(claimed: Claimed, attempt: int) -> float:
    return backoff_seconds(attempt, jitter_of(claimed.turn_id, attempt))
