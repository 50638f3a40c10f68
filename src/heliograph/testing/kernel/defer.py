"""Defer turns in memory, like 44_defer.sql, under the same names."""

from __future__ import annotations

from typing import Any

from heliograph.testing.kernel import jsonb as j
from heliograph.testing.kernel.check_calls import YEAR_SECONDS
from heliograph.testing.kernel.claim import stop_order
from heliograph.testing.kernel.endings import end_by_kernel, end_if_stopping, release_head
from heliograph.testing.kernel.head import add_bells, owns
from heliograph.testing.kernel.jsonb import SqlError, get_raw, get_text
from heliograph.testing.kernel.limits import limits
from heliograph.testing.kernel.tables import Row, interval, timestamp
from heliograph.testing.kernel.transaction import Transaction


def defer(tx: Transaction, items: Any) -> list[Row]:
    most = limits(tx)["deferrals_max"]
    for item in j.elements(items):
        seconds = j.parse_float(get_text(item, "delay_seconds"))
        if seconds is None or not 0 <= seconds <= YEAR_SECONDS:
            raise SqlError("22023", "delay_seconds must be between 0 and 366 days")
        if not 0 <= (j.get_whole(item, "deferrals_max") or 0) < 2**31:
            raise SqlError("22023", "deferrals_max must be 0 or more, or null")
        if get_text(item, "trust") not in (None, "trusted", "untrusted"):
            raise SqlError("22023", "trust must be trusted or untrusted")
    woken = list[str]()
    answers = [{"turn_id": get_raw(item, "turn_id"), **_defer(tx, item, most, woken)} for item in j.elements(items)]
    return add_bells(tx, answers, woken)


def _defer(tx: Transaction, item: Any, deferrals_max: int, woken: list[str]) -> Row:
    """Defer one turn until a later time, add the agents that this woke to `woken`, and return its outcome. Bug: defer_uncapped."""
    if not owns(tx, item):
        return {"outcome": "stale"}
    agent_id, turn_id = str(get_text(item, "agent_id")), str(get_text(item, "turn_id"))
    head, terminates = tx.tables.heads[agent_id], j.has(item, "terminates") and item["terminates"] is True
    if terminates and head["stop_requested_at"] is not None:
        return {"outcome": "stopping", **stop_order(head)}
    if (ended := end_if_stopping(tx, agent_id)) is not None:
        woken += ended
        return {"outcome": "stopped"}
    turn, own = tx.tables.turns[turn_id], j.parse_integer(get_text(item, "deferrals_max"))
    most, reason = deferrals_max if own is None else own, get_text(item, "reason")
    reason = None if reason is None else reason[:1000]
    if turn["defer_count"] >= most and "defer_uncapped" not in tx.bugs:
        limit = "the limit with helio db limits deferrals_max=NUMBER" if own is None else "the retries of the agent"
        message = (f"the turn would be deferred {turn['defer_count'] + 1} times; at most {most} are allowed: remove the cause, or "
                   f"raise {limit}. The last reason: {reason or ''}")  # fmt: skip
        is_untrusted = get_text(item, "trust") == "untrusted"
        woken += end_by_kernel(tx, turn_id, "failed", "RESOURCE_EXHAUSTED", message, is_untrusted=is_untrusted)
        return {"outcome": "exhausted"}
    due_at = tx.now + interval(j.parse_float(get_text(item, "delay_seconds")) or 0.0)
    tx.set(turn, defer_count=turn["defer_count"] + 1)
    for row in tx.tables.inbox.of(turn_id):
        if row["status"] == "processing":
            tx.set(
                row, status="deferred", retry_count=row["retry_count"] + 1, next_retry_at=due_at, defer_reason=reason
            )
    release_head(tx, agent_id, due_at)
    tx.update(tx.tables.heads, head, terminates=terminates)
    return {"outcome": "deferred", "due_at": timestamp(due_at)}
