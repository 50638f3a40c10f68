"""The failures with which the runtime itself halts a turn: a budget, or a rule about egress or untrusted content. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from heliograph.codes import BUDGET_EXCEEDED, POLICY_VIOLATION, RESOURCE_LIMIT, HaltReason
from heliograph.errors import EGRESS_REJECTED, Denied, HeliographError


def halt_reason_of(error: BaseException, *, has_read_untrusted: bool) -> HaltReason | None:
    """The reason of the halt of a turn that fails with `error`; None for an ordinary failure.

    has_read_untrusted: the turn needed an approval because of what it had read, and `Denied` is the answer.
    """
    if isinstance(error, Denied):
        return POLICY_VIOLATION if has_read_untrusted else None
    if not isinstance(error, HeliographError):
        return None
    inner = getattr(error, "error", None)  # that of the call which failed
    codes = {
        error.code,
        inner.get("code") if isinstance(inner, Mapping) else None,
        getattr(error.__cause__, "code", None),
    }
    if EGRESS_REJECTED in codes:
        return POLICY_VIOLATION
    return halt_reason_of_code(error.code)


def halt_reason_of_code(code: str) -> HaltReason | None:
    """The reason of the halt of a turn that a limit with this code ends."""
    return RESOURCE_LIMIT if code == BUDGET_EXCEEDED else None
