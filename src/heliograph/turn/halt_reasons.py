"""The failures after which the runtime logs a halt: at a budget, or at a rule about egress or untrusted content. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from heliograph.codes import BUDGET_EXCEEDED, POLICY_VIOLATION, RESOURCE_LIMIT, HaltReason
from heliograph.errors import EGRESS_REJECTED, Denied, HeliographError


def halt_reason_of(error: BaseException, *, has_read_untrusted: bool) -> HaltReason | None:
    """Return the reason to halt a turn that fails with `error`; None for an ordinary failure.

    has_read_untrusted: the turn has read untrusted content, so a denied approval is a violation of that rule.
    """
    if isinstance(error, Denied):
        return POLICY_VIOLATION if has_read_untrusted else None
    if not isinstance(error, HeliographError):
        return None
    inner = getattr(error, "error", None)  # the error of the failed call
    codes = {
        error.code,
        inner.get("code") if isinstance(inner, Mapping) else None,
        getattr(error.__cause__, "code", None),
    }
    if EGRESS_REJECTED in codes:
        return POLICY_VIOLATION
    return halt_reason_of_code(error.code)


def halt_reason_of_code(code: str) -> HaltReason | None:
    """Return the reason to halt a turn that a limit with this code ends."""
    return RESOURCE_LIMIT if code == BUDGET_EXCEEDED else None
