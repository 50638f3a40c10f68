"""The twin of 70_sweeps and 80_outbox.sql: functions of the same names."""

from __future__ import annotations

from itertools import islice
from typing import Any

from heliograph.testing import twin_json as j
from heliograph.testing.twin_json import Refusal
from heliograph.testing.twin_runs import dispatch_next, run_view
from heliograph.testing.twin_tables import Row, Transaction, interval
from heliograph.testing.twin_turns import after_cards, end_by_kernel


def sweep_leases(tx: Transaction, limit: int) -> Row:
    """Bugs: no_lease_sweep, attempts_unbounded, no_bump, recovery_loses_place."""
    tables = tx.tables
    due = [h for h in tables.heads.values() if h["status"] == "running" and h["lease_until"] <= tx.now]
    due.sort(key=lambda h: (h["lease_until"], h["agent_id"]))
    due = [] if "no_lease_sweep" in tx.bugs else _limited(due, limit)
    recovered, ended, targets = list[str](), list[str](), set[str]()
    for head in sorted(due, key=lambda h: (h["run_id"], h["agent_id"])):
        turn = tables.turns[head["active_agent_turn_id"]]
        turn_id, attempts = turn["agent_turn_id"], turn["attempts"] + 1
        if attempts >= turn["max_attempts"] and "attempts_unbounded" not in tx.bugs:
            message = f"lost its worker {attempts} times"
            targets.update(end_by_kernel(tx, turn_id, "failed", "RESOURCE_EXHAUSTED", message))
            ended.append(turn_id)
            continue
        _recover(tx, head, turn)
        recovered.append(turn_id)
        targets.add(head["target"])
    return {"recovered": recovered, "ended": ended, "targets": sorted(targets)}


def _recover(tx: Transaction, head: Row, turn: Row) -> None:
    tx.set(turn, attempts=turn["attempts"] + 1)
    at = max(after_cards(tx, turn["agent_turn_id"]), head["moved_at"])
    lease = tx.tables.leases.get((head["agent_id"], head["turn_epoch"]))
    if lease is not None:
        tx.set(lease, ended_at=at)
    epoch = head["turn_epoch"] + 1
    tx.update(
        tx.tables.heads, head, status="dispatched", turn_epoch=head["turn_epoch"] if "no_bump" in tx.bugs else epoch,
        owner=None, lease_until=None, moved_at=at,
        ready_at=tx.now if "recovery_loses_place" in tx.bugs else head["ready_at"],
    )  # fmt: skip
    for row in tx.tables.inbox.values():
        if row["agent_turn_id"] == turn["agent_turn_id"] and row["status"] == "processing":
            tx.set(row, status="pending", turn_epoch=epoch)


def sweep_expired(tx: Transaction, limit: int) -> Row:
    """Bug: no_ttl_sweep."""
    turns = tx.tables.turns
    due = [t for t in turns.values() if t["state"] != "done" and t["expires_at"] <= tx.now]
    due.sort(key=lambda t: (t["expires_at"], t["agent_turn_id"]))
    due = [] if "no_ttl_sweep" in tx.bugs else _limited(due, limit)
    ended, targets = list[str](), set[str]()
    for turn in sorted(due, key=lambda t: (t["run_id"], t["agent_id"], t["queue_seq"])):
        turn_id = turn["agent_turn_id"]
        message = "not finished before its time to live ran out"
        targets.update(end_by_kernel(tx, turn_id, "timeout", "TIMEOUT", message))
        ended.append(turn_id)
    return {"ended": ended, "targets": sorted(targets)}


def sweep_queued(tx: Transaction, limit: int) -> Row:
    """Bug: no_queued_sweep."""
    waiting = {t["agent_id"] for t in tx.tables.turns.values() if t["state"] == "queued"}
    idle = sorted(a for a in waiting if tx.tables.heads[a]["status"] == "idle")
    return {"targets": dispatch_next(tx, [] if "no_queued_sweep" in tx.bugs else _limited(idle, limit))}


def sweep_bells(tx: Transaction, older_seconds: float) -> list[str]:
    """Bug: no_bell_sweep."""
    before = tx.now - interval(older_seconds)
    waiting = {h["target"] for h in tx.tables.heads.values() if h["status"] == "dispatched" and h["moved_at"] <= before}
    return [] if "no_bell_sweep" in tx.bugs else sorted(waiting)


def sweep_owed(tx: Transaction, targets: Any, limit: int) -> list[Row]:
    wanted = j.texts(targets)
    owing = [r for r in tx.tables.runs.values() if r["owed"] > 0 and r["target"] in wanted]
    answer = []
    for run in _limited(sorted(owing, key=lambda r: r["run_id"]), limit):
        signals = [{"seq": s["seq"], "name": s["name"], "payload": s["payload"], "agent": s["agent"],
                    "turn_id": s["agent_turn_id"]} for s in tx.tables.log(run["run_id"]) if s["owed"]]  # fmt: skip
        answer.append({"target": run["target"], "run": run_view(tx, run["run_id"]), "signals": signals or None})
    return answer


def read_outbox(tx: Transaction, limit: int) -> list[Row]:
    unpublished = (o for o in tx.tables.outbox.values() if o["published_at"] is None)
    _limited([], limit)
    return [{key: o[key] for key in ("outbox_id", "key", "subject", "body")} for o in islice(unpublished, limit)]


def mark_published(tx: Transaction, ids: Any) -> int:
    marked = 0
    for item in set(j.texts(ids)):
        row = tx.tables.outbox.get(j.parse_integer(item))
        if row is not None and row["published_at"] is None:
            tx.set(row, published_at=tx.now)
            marked += 1
    return marked


def _limited(rows: list[Any], limit: int) -> list[Any]:
    """`limit`."""
    if limit < 0:
        raise Refusal("2201W", "LIMIT must not be negative")
    return rows[:limit]
