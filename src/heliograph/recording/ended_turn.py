"""Read the record of an ended turn for a replay from the ledger: its first claim, its calls, and why the log may lack a part of it."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from heliograph.codes import BUDGET_EXCEEDED, CIRCUIT_OPEN, RATE_LIMITED
from heliograph.records import Claimed, RunView, Wait
from heliograph.turn.call_id import CallId

FROM_OUTSIDE = ("canceled", "timeout")  # a stop or a deadline ended the turn, at a moment that the ledger does not have
_NOT_ADMITTED = (BUDGET_EXCEEDED, CIRCUIT_OPEN, RATE_LIMITED)
_TTL_SECONDS = 86_400.0
_AMOUNT = 10**15  # of a budget: what the turn could use is in its results


def first_claim(claimed: Claimed, view: RunView) -> Claimed:
    """The first claim of an ended turn: before its first call. view: the run that it read."""
    budget = None if claimed.budget is None else dict.fromkeys(claimed.budget, _AMOUNT)
    return replace(claimed, run=view, waits=[], attempts=0, defer_count=0, ttl_seconds=_TTL_SECONDS, budget=budget,
                   stop=None)  # fmt: skip


def why_incomplete(outcome: str, content: Any, deaths: int) -> str | None:
    """Why the log may lack signals that the code of the turn emits; None for a turn that its own code ended."""
    if outcome in FROM_OUTSIDE:
        return f"the turn ended as {outcome}"
    if deaths:
        return "its worker died" if deaths == 1 else f"its workers died {deaths} times"
    is_limited = outcome == "partial" or error_code(content) in _NOT_ADMITTED
    return "a limit ended the turn" if is_limited else None


def error_code(content: Any) -> Any:
    """The code of the error of a deliverable; None if it has none."""
    error = content.get("error") if isinstance(content, dict) else None
    return error.get("code") if isinstance(error, dict) else None


def is_not_admitted(wait: Wait) -> bool:
    """Whether a budget, a breaker or a rate limit rejected the call."""
    error = wait.content.get("error") if isinstance(wait.content, dict) else None
    return isinstance(error, dict) and (error.get("code") in _NOT_ADMITTED or "first_failed_call" in error)


def is_model_call(call_id: str) -> bool:
    """Whether this is the id of a model call; False for an id of another form."""
    parsed = CallId.parse(call_id)
    return parsed is not None and parsed.is_model_call
