"""The failures with which the runtime itself halts a turn: a budget, or a rule about egress or untrusted content. Pure.

The reason never follows from a code alone, because tools and other systems report codes of their own.
"""

from __future__ import annotations

from collections.abc import Mapping

from heliograph.codes import BUDGET_EXCEEDED, POLICY_VIOLATION, RESOURCE_LIMIT, HaltReason
from heliograph.errors import EGRESS_REJECTED, BudgetExceeded, Denied, HeliographError, Rejected


def halt_reason_of(error: BaseException) -> HaltReason | None:
    """Return the reason to halt a turn that fails with `error`; None for an ordinary failure."""
    if isinstance(error, BudgetExceeded) or "budget" in _recorded(error):
        return RESOURCE_LIMIT
    if any(_is_forbidden_address(each) for each in (error, error.__cause__)):
        return POLICY_VIOLATION
    return POLICY_VIOLATION if isinstance(error, Denied) and error.error.get("untrusted") is True else None


def halt_reason_of_limit(limit: Mapping[str, object]) -> HaltReason | None:
    """Return the reason to halt a turn that one of its own limits cuts short."""
    return RESOURCE_LIMIT if limit.get("code") == BUDGET_EXCEEDED else None


def _is_forbidden_address(error: BaseException | None) -> bool:
    """Whether the egress policy of this worker forbids an address: of the agent, or of a gateway that its call was to reach."""
    if isinstance(error, Rejected):
        return error.code == EGRESS_REJECTED
    return "egress" in _recorded(error)


def _recorded(error: BaseException | None) -> Mapping[str, object]:
    """The recorded error of a call that failed. Only this worker adds keys to it."""
    given = getattr(error, "error", None) if isinstance(error, HeliographError) else None
    return given if isinstance(given, Mapping) else {}
