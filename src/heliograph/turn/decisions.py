"""How a turn starts, and how it continues after a failed model call or a rejected suspension. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from heliograph.codes import CANCELED, INIT_FAILED, RESOURCE_EXHAUSTED
from heliograph.definitions.agent import AgentSpec
from heliograph.definitions.model_settings import ModelSettings, policy_of_model
from heliograph.error_text import format_exception, is_recoverable, safe_repr
from heliograph.errors import (
    DelegationFailed,
    HarnessError,
    HeliographError,
    StepInDoubt,
    ToolFailed,
    TurnTimedOut,
)
from heliograph.policy.retry import RetryPolicy
from heliograph.reactive.run_memory import is_active
from heliograph.records import Claimed, WriteResult
from heliograph.turn.events import DeferTurn, Event, Hydrated, Raised, Resolved
from heliograph.turn.interruptions import DELAY_SECONDS_MAX
from heliograph.turn.terminating_calls import awaits_terminating, terminating_result
from heliograph.types import JsonObject

_REASON_MAX = 500
_NO_RETRY = RetryPolicy(enabled=False)


def first_event(claimed: Claimed, spec: AgentSpec) -> Hydrated | Raised:
    """The first event of a claimed turn. A turn without a message in its inbox is rejected."""
    waits = claimed.waits  # most turns have none
    has_waited = claimed.defer_count > 0 or (bool(waits) and any(w.kind != "inline" for w in waits))
    has_result = bool(waits) and any(w.state == "resolved" for w in waits)
    has_acted = has_waited or has_result
    # the kernel itself records a call in doubt, and logs no signal with it
    is_resumed = has_waited or (has_result and claimed.has_emitted_signals)
    if not has_acted and not any(row.message_type in ("turn", "ui_action") for row in claimed.inbox):
        return Raised("failed", INIT_FAILED, "protocol error: the inbox holds no message for this turn")
    return Hydrated(
        recoveries=claimed.attempts,
        may_run_again=spec.effect != "once",
        # turns that acted before their run began to end still end their own way, and so do their children
        is_run_over=not is_active(claimed.run) and not has_acted and claimed.parent_turn_id is None,
        is_resumed=is_resumed,
        terminating_result=terminating_result(waits) if waits else None,
        awaits_terminating=bool(waits) and awaits_terminating(waits),
        has_emitted_signals=claimed.has_emitted_signals,
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
        delay = RetryPolicy().delay_seconds(claimed.defer_count + 1, claimed.turn_id)
        return DeferTurn(safe_repr(str(result.message), _REASON_MAX), delay, spec.retries)
    return Raised("failed", RESOURCE_EXHAUSTED, f"the turn may not wait: {result.message}")


def deferral_after(
    error: BaseException, claimed: Claimed, spec: AgentSpec, deferrals_before: int, phase: str = "act", code: str = "",
    models: Sequence[ModelSettings] = (),
) -> DeferTurn | None:  # fmt: skip
    """The deferral of a turn whose model or phase may succeed later; None where the turn fails.

    deferrals_before: the deferrals before the agent last made progress; the limits count from there. code: of the error. models:
    the settings of the application's models.
    """
    policy = _policy(error, spec, phase, code, models)
    at_most = deferrals_before + policy.retries
    if claimed.defer_count >= at_most:
        return None
    reason = error.message if isinstance(error, HeliographError) else format_exception(error, _REASON_MAX)
    retry_after = error.retry_after_seconds if isinstance(error, HarnessError) else 0.0
    delay = policy.delay_seconds(claimed.defer_count - deferrals_before + 1, claimed.turn_id, retry_after)
    return DeferTurn(safe_repr(reason, _REASON_MAX), min(delay, DELAY_SECONDS_MAX), at_most)


def retry_counts(claimed: Claimed, spec: AgentSpec, deferrals_before: int, phase: str) -> JsonObject:
    """What the details of an error say about the repetitions of a function; nothing if it was not repeated."""
    made = claimed.defer_count - deferrals_before
    if phase != "act" or spec.run is None or spec.retry is None or made <= 0:
        return {}
    return {"retry_count": made, "max_retries": spec.retry.retries}


def _policy(
    error: BaseException, spec: AgentSpec, phase: str, code: str, models: Sequence[ModelSettings]
) -> RetryPolicy:
    """How a phase that failed with this error is repeated."""
    if code in spec.lifecycle.error_retries:
        return RetryPolicy(spec.lifecycle.error_retries[code] + 1)
    if isinstance(error, HarnessError):
        policy = _model_policy(error, spec, models)
        return policy if error.recoverable and policy.allows(error.code) else _NO_RETRY
    may_pass = spec.lifecycle.error_recoverable.get(code, is_recoverable(error))
    if phase == "act" and spec.run is not None and spec.retry is not None:
        return (
            spec.retry
            if _may_run_again(error, spec) and spec.retry.allows(code, is_recoverable=may_pass, error=error)
            else _NO_RETRY
        )
    return RetryPolicy(spec.lifecycle.init_retries + 1) if phase == "init" and may_pass else _NO_RETRY


def _may_run_again(error: BaseException, spec: AgentSpec) -> bool:
    """Whether a second run of the function may end otherwise. The error of a recorded call would be raised again; and a run of a
    `once` agent that timed out may have had its effect."""
    if isinstance(error, ToolFailed | DelegationFailed | StepInDoubt):
        return False
    return spec.effect != "once" or not isinstance(error, TurnTimedOut)


def _model_policy(error: HarnessError, spec: AgentSpec, models: Sequence[ModelSettings]) -> RetryPolicy:
    """The policy of the agent, otherwise that of the model that failed."""
    of_model = None if spec.retry is not None or error.model is None else policy_of_model(models, error.model)
    return (spec.retry or of_model or RetryPolicy(spec.retries + 1)).for_model_calls
