"""Sweep leases, lifetimes, queues and waits in memory, like 70_sweeps.sql and 71_sweep_waits.sql, under the same names."""

from __future__ import annotations

from typing import Any

from heliograph.error_text import counted
from heliograph.testing.kernel import jsonb as j
from heliograph.testing.kernel.endings import end_by_kernel, end_if_stopping, may_terminate, release_head
from heliograph.testing.kernel.head import dispatch_next, queue_of, trust_of
from heliograph.testing.kernel.human_tasks import asked_of, defer_expiry, end_human_wait, expiry_message, rounded
from heliograph.testing.kernel.jsonb import SqlError, get, get_raw
from heliograph.testing.kernel.limits import content_of, limits
from heliograph.testing.kernel.outbox import redelivery_at
from heliograph.testing.kernel.resolve import open_waits, resolve
from heliograph.testing.kernel.sweep_batches import check_sweep, first, sweep_each
from heliograph.testing.kernel.tables import Row, end_of, interval
from heliograph.testing.kernel.transaction import Transaction
from heliograph.testing.kernel.turn_queue import inbox_row
from heliograph.testing.kernel.unclaimed import sweep_unclaimed, unclaimed

_YEAR_SECONDS = 31_622_400


def sweep_leases(tx: Transaction, limit: int | None) -> Row:
    """Recover running turns whose lease has expired. Bug: no_lease_sweep."""
    check_sweep(limit)
    due = [h for h in tx.tables.heads.values() if h["status"] == "running" and h["lease_until"] <= tx.now]
    found = first(due, lambda h: (h["sweep_failures"], h["lease_until"], h["agent_id"]), limit)
    turns = [] if "no_lease_sweep" in tx.bugs else [h["active_agent_turn_id"] for h in found]
    return sweep_each(tx, turns, ("recovered", "ended"), _sweep_lease)


def _sweep_lease(tx: Transaction, agent_id: str, turn_id: str) -> Row:
    """Recover one turn, or end it after its last attempt. Bug: attempts_unbounded."""
    woken = None if may_terminate(tx, agent_id) else end_if_stopping(tx, agent_id)
    if woken is None:
        turn = tx.tables.turns[turn_id]
        attempts = turn["attempts"] + 1
        if attempts < turn["max_attempts"] or "attempts_unbounded" in tx.bugs:
            tx.set(turn, attempts=attempts)
            return {"recovered": turn_id, "woken": [release_head(tx, agent_id, None)]}
        woken = end_if_stopping(tx, agent_id)
        if woken is None:
            woken = end_by_kernel(
                tx, turn_id, "failed", "RESOURCE_EXHAUSTED", f"lost its worker {counted(attempts, 'time')}"
            )
    return {"ended": turn_id, "woken": woken}


def sweep_expired(tx: Transaction, limit: int | None) -> Row:
    """End turns whose lifetime is over. Bug: no_ttl_sweep."""
    check_sweep(limit)
    due = [t for t in tx.tables.turns.values() if _is_expired(tx, t)]
    found = [] if "no_ttl_sweep" in tx.bugs else _without_failures_first(
        tx, due, lambda t: (t["expires_at"], t["agent_turn_id"]), limit)  # fmt: skip
    expired = [t["agent_turn_id"] for t in found]
    return sweep_each(tx, [*expired, *unclaimed(tx, expired, limit)], ("ended",), _sweep_either)


def _sweep_either(tx: Transaction, agent_id: str, turn_id: str) -> Row:
    found = sweep_unclaimed(tx, agent_id, turn_id)
    return _sweep_expiry(tx, agent_id, turn_id) if found is None else found


def _without_failures_first(tx: Transaction, rows: list[Row], key: Any, limit: int | None) -> list[Row]:
    """The first heads without a failed sweep; if there are too few, also the first of the others."""

    def failures(row: Row) -> int:
        turn = tx.tables.turns[row["agent_turn_id"]]
        return int(tx.tables.heads[turn["agent_id"]]["sweep_failures"])

    found = first([r for r in rows if not failures(r)], key, limit)
    if limit is None or len(found) < limit:
        failed = [r for r in rows if failures(r)]
        found += first(
            failed,
            lambda r: (failures(r), *key(r)),
            None if limit is None else limit - len(found),
        )
    return found


def _sweep_expiry(tx: Transaction, agent_id: str, turn_id: str) -> Row:
    turn = tx.tables.turns[turn_id]
    if not _is_expired(tx, turn) or defer_expiry(tx, turn):
        return {}
    woken = end_if_stopping(tx, agent_id) if turn["state"] == "active" else None
    if woken is None:
        woken = _end_expired(tx, turn)
    return {"ended": turn_id, "woken": woken}


def _end_expired(tx: Transaction, turn: Row) -> list[str]:
    turn_id = turn["agent_turn_id"]
    quotes_untrusted = any(
        wait["state"] == "open" and wait["kind"] == "human" and wait["taint"] is not None
        for wait in tx.tables.waits.of(turn_id)
    )
    return end_by_kernel(
        tx, turn_id, "timeout", "TIMEOUT", expiry_message(tx, turn), {"scope": "total"}, is_untrusted=quotes_untrusted
    )


def _is_expired(tx: Transaction, turn: Row) -> bool:
    return turn["state"] != "done" and turn["human_wait_since"] is None and bool(turn["expires_at"] <= tx.now)


def sweep_queued(tx: Transaction, limit: int | None) -> Row:
    """Dispatch queued turns of idle agents. Bug: no_queued_sweep."""
    check_sweep(limit)
    heads = [tx.tables.heads[a] for a in {t["agent_id"] for t in tx.tables.turns.values() if t["state"] == "queued"}]
    idle = first([h for h in heads if h["status"] == "idle"], lambda h: (h["sweep_failures"], h["agent_id"]), limit)
    turns = [] if "no_queued_sweep" in tx.bugs else [tx.tables.queued(h["agent_id"])[0]["agent_turn_id"] for h in idle]
    return sweep_each(tx, turns, ("dispatched",), _sweep_queue)


def _sweep_queue(tx: Transaction, agent_id: str, turn_id: str) -> Row:
    woken = dispatch_next(tx, [agent_id])
    return {"dispatched": turn_id, "woken": woken} if woken else {}


def sweep_bells(tx: Transaction, older_seconds: float) -> list[str]:
    """List the queues with turns that no worker has claimed for a while, so that their workers are notified again.

    Bug: no_bell_sweep.
    """
    if not 0 <= older_seconds <= _YEAR_SECONDS:
        raise SqlError("22023", f"seconds must be between 0 and 31622400, not {older_seconds}")
    before = tx.now - interval(older_seconds)
    ready = [h for h in tx.tables.heads.values() if h["status"] == "dispatched"]
    late = {queue_of(h) for h in ready if (h["moved_at"] if h["due_at"] is None else h["due_at"]) <= before}
    return [] if "no_bell_sweep" in tx.bugs else sorted(late)


# ---- waits ----


def sweep_waits(tx: Transaction, limit: int | None) -> Row:
    """Resolve the calls whose deadline has passed: timers as success, others as timeout. Bug: no_timeout_sweep (K11)."""
    check_sweep(limit)
    due = [w for w in tx.tables.waits.values() if _is_overdue(tx, w)]
    found = [] if "no_timeout_sweep" in tx.bugs else _without_failures_first(
        tx, due, lambda w: (w["deadline"], w["agent_turn_id"], w["tool_call_id"]), limit)  # fmt: skip
    return sweep_each(tx, [w["agent_turn_id"] for w in found], ("resolved", "resumed"), _sweep_wait)


def _is_overdue(tx: Transaction, wait: Row) -> bool:
    is_open = wait["state"] == "open" and wait["kind"] != "inline"
    return is_open and wait["deadline"] is not None and bool(wait["deadline"] <= tx.now)


def _sweep_wait(tx: Transaction, agent_id: str, turn_id: str) -> Row:
    due = sorted(
        (w for w in tx.tables.waits.of(turn_id) if _is_overdue(tx, w)), key=lambda w: (w["deadline"], w["position"])
    )
    return _resolve_swept(tx, turn_id, [_overdue(tx, wait) for wait in due])


def _overdue(tx: Transaction, wait: Row) -> Row:
    row = {"turn_id": wait["agent_turn_id"], "call_id": wait["tool_call_id"], "message_type": "timeout"}
    if wait["kind"] == "timer":
        return {**row, "status": "success"}
    code = "DELEGATION_TIMEOUT" if wait["kind"] == "child" else "TOOL_TIMEOUT"
    seconds = rounded(wait["deadline"] - wait["opened_at"])
    message = f"{wait['tool']} did not answer within {seconds} s"
    if wait["kind"] == "human":
        message = f'nobody answered "{asked_of(tx, wait)}" within {seconds} s'
    return {**row, "status": "timeout", "error": {"code": code, "recoverable": True, "message": message}}


def _resolve_swept(tx: Transaction, turn_id: str, results: list[Row]) -> Row:
    if not results:
        return {}
    resumed, woken = resolve(tx, results, limits(tx), logs=True)
    return {"resolved": turn_id, "woken": woken, **({"resumed": turn_id} if turn_id in resumed else {})}


def sweep_reports(tx: Transaction, limit: int | None) -> Row:
    """Resolve the calls whose delegated turns have ended. Bugs: no_report_sweep, child_reported_twice."""
    check_sweep(limit)
    tables = tx.tables
    due = [
        o
        for o in tables.outbox.values()
        if o["kind"] == "report" and o["published_at"] is None and o["due_at"] <= tx.now
    ]
    rows = first(due, lambda o: (o["due_at"], o["outbox_id"]), limit)
    held = [o["agent_turn_id"] for o in rows if o["agent_turn_id"] in tables.turns]
    answer = sweep_each(tx, [] if "no_report_sweep" in tx.bugs else held, ("resolved", "resumed"), _sweep_report)
    failed = {row["turn_id"] for row in answer["failed"]}
    for row in rows if not {"no_report_sweep", "child_reported_twice"} & tx.bugs else ():
        if row["published_at"] is None:
            has_failed = row["agent_turn_id"] in failed
            tx.set(row, deliveries=row["deliveries"] + 1, published_at=None if has_failed else tx.now,
                   due_at=redelivery_at(tx, row["deliveries"]) if has_failed else row["due_at"])  # fmt: skip
    return answer


def _sweep_report(tx: Transaction, agent_id: str, turn_id: str) -> Row:
    results = []
    keys = sorted(f"report:{w['child_turn_id']}" for w in tx.tables.waits.of(turn_id) if w["kind"] == "child")
    candidates = [
        o
        for key in keys
        if (o := tx.tables.outbox.get(key)) is not None and o["published_at"] is None and o["due_at"] <= tx.now
    ]
    for row in sorted(candidates, key=lambda o: int(o["outbox_id"])):
        if "child_reported_twice" not in tx.bugs:
            tx.set(row, published_at=tx.now, deliveries=row["deliveries"] + 1)
        child = tx.tables.turns.get(row["body"]["child_turn_id"])
        card = None if child is None else tx.tables.cards.get(end_of(child["agent_turn_id"]))
        wait = tx.tables.waits.get((turn_id, row["call_id"]))
        is_open = wait is not None and (wait["state"] == "open" or "child_reported_twice" in tx.bugs)
        if child is not None and card is not None and is_open:
            results.append(_ended(turn_id, row["call_id"], child, content_of(tx, card["content"])))
    return _resolve_swept(tx, turn_id, results)


def _ended(turn_id: str, call_id: str, child: Row, content: Any) -> Row:
    row = {"turn_id": turn_id, "call_id": call_id, "message_type": "tool_result", **trust_of(content), "more": {
        "child_turn_id": child["agent_turn_id"], "outcome": child["outcome"], "deliverable_card_id": end_of(child["agent_turn_id"]),
    }}  # fmt: skip
    if child["outcome"] in ("success", "partial"):
        return {**row, "status": "success", "output": content}
    error = get(content, "error")
    if error is j.ABSENT:
        error = {"code": "DELEGATION_ERROR", "message": get_raw(content, "text")}
    return {**row, "status": child["outcome"], "error": j.joined(error, {"child_turn_id": child["agent_turn_id"]})}


def sweep_stuck(tx: Transaction, limit: int | None, after: str | None = "") -> Row:
    check_sweep(limit)
    active = sorted(
        t["agent_id"] for t in tx.tables.turns.values() if t["state"] == "active" and t["agent_id"] > (after or "")
    )
    seen = active if limit is None else active[: 10 * limit]
    stuck = [h for h in (tx.tables.heads[a] for a in seen) if _is_stuck(tx, h)]
    found = first(stuck, lambda h: (h["sweep_failures"], h["agent_id"]), limit)
    turns = [h["active_agent_turn_id"] for h in found]
    is_full = limit is not None and seen and len(seen) == 10 * limit
    return {**sweep_each(tx, turns, ("resumed",), _sweep_stuck), "after": seen[-1] if is_full else None}


def _is_stuck(tx: Transaction, head: Row) -> bool:
    return head["status"] == "suspended" and not open_waits(tx, head["active_agent_turn_id"])


def _sweep_stuck(tx: Transaction, agent_id: str, turn_id: str) -> Row:
    head = tx.tables.heads[agent_id]
    if not _is_stuck(tx, head) or head["active_agent_turn_id"] != turn_id:
        return {}
    tx.update(tx.tables.heads, head, status="dispatched", waiting_tool_count=0, resume_deadline=None, resumes_on=None,
              moved_at=max(tx.now, head["moved_at"]))  # fmt: skip
    end_human_wait(tx, tx.tables.turns[turn_id])
    inbox_id = tx.next("inbox_id")
    tx.insert(tx.tables.inbox, (turn_id, inbox_id),
              inbox_row(tx, tx.tables.turns[turn_id], inbox_id, "timeout", "pending", turn_id))  # fmt: skip
    return {"resumed": turn_id, "woken": [agent_id]}
