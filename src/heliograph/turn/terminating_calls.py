"""Calls with after="terminate": their result ends the turn, and its agent does not run again. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from heliograph.records import Wait
from heliograph.turn.calls import AFTERS, CallResult, ResultStatus, result_of

_WORST_FIRST: tuple[ResultStatus, ...] = ("failed", "timeout", "unknown", "canceled", "partial", "success")


def terminating_result(waits: Sequence[Wait]) -> CallResult | None:
    """The result that ends its turn instead of resuming it: the first result of a call with after="terminate".

    Of several such calls in one step, the worst result counts; of equal ones, the first to arrive. A result may choose
    otherwise only for a call with `may_override`.
    """
    results = [result_of(wait) for wait in _terminating(waits)]
    return min(results, key=lambda result: _WORST_FIRST.index(result.status), default=None)


def awaits_terminating(waits: Sequence[Wait]) -> bool:
    """Whether the turn has a terminating result, but another such call of that step has no result yet."""
    found = _terminating(waits)
    return bool(found) and any(
        wait.state == "open" and wait.kind != "inline" and wait.after_execution == "terminate"
        and wait.step_id == found[0].step_id and wait.step_id is not None
        for wait in waits
    )  # fmt: skip


def _terminating(waits: Sequence[Wait]) -> list[Wait]:
    """The calls of one step whose results end the turn, in the order of their results."""
    resolved = sorted((w for w in waits if w.state == "resolved"), key=lambda w: w.resolved_position or 0)
    found = [wait for wait in resolved if _ends_turn(wait)]
    return [
        wait for wait in found if wait is found[0] or (wait.step_id == found[0].step_id and wait.step_id is not None)
    ]


def _ends_turn(wait: Wait) -> bool:
    override = _override(result_of(wait)) if wait.may_override else None
    return (override or wait.after_execution) == "terminate"


def _override(result: CallResult) -> str | None:
    """The choice of a tool between the values of `after`, if its result contains one."""
    control = result.output.get("__cg_control") if isinstance(result.output, dict) else None
    after = control.get("after_execution") if isinstance(control, dict) else None
    return after if after in AFTERS else None
