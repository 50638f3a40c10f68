"""`RunResult.failures` has every failure of a run, with its complete reason, in the order of the log."""

from __future__ import annotations

from heliograph import RunResult, Signal
from heliograph.signals.trace import TurnFailure
from tests.faces.test_cli_view import logged


def failed(second: int, agent: str, outcome: str, code: str, message: str) -> Signal:
    return logged(
        second, "agent:failed", {"agent": agent, "outcome": outcome, "error": {"code": code, "message": message}}, agent
    )


def test_failures_have_complete_reasons_in_the_order_of_the_log() -> None:
    long = "no ink\n" * 3000 + "at the very end"
    signals = [
        logged(1, "agent:completed", {"agent": "reader", "outcome": "success"}, "reader"),
        failed(2, "writer", "failed", "ACTION_FAILED", long),
        failed(3, "critic", "timeout", "TIMEOUT", "too slow"),
        failed(4, "stopped", "canceled", "USER_INTERRUPT", "stopped by ann"),
        failed(5, "author", "failed", "ACTION_FAILED", "second"),
    ]
    result = RunResult[object]("run_1", "failed", {}, signals=signals)
    assert result.failures == [
        TurnFailure("writer", signals[1].turn_id or "", "failed", "ACTION_FAILED", long),
        TurnFailure("critic", signals[2].turn_id or "", "timeout", "TIMEOUT", "too slow"),
        TurnFailure("author", signals[4].turn_id or "", "failed", "ACTION_FAILED", "second"),
    ]
