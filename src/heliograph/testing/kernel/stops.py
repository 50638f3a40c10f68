"""Stop turns and runs in memory, like 52_stop and 72_sweep_stops.sql, under the same names."""

from __future__ import annotations

from typing import Any

from heliograph.ids import signal_id
from heliograph.testing.kernel import jsonb as j
from heliograph.testing.kernel.endings import end_by_kernel, end_if_stopping
from heliograph.testing.kernel.head import bells, distinct, log
from heliograph.testing.kernel.human_tasks import credit_human_wait_time
from heliograph.testing.kernel.jsonb import SqlError, get_raw, get_text
from heliograph.testing.kernel.outbox import order_stops, redelivery_at
from heliograph.testing.kernel.run_forks import root_id
from heliograph.testing.kernel.sweep_batches import check_sweep, first, sweep_each
from heliograph.testing.kernel.tables import Row, interval, timestamp
from heliograph.testing.kernel.transaction import Transaction
from heliograph.testing.kernel.turn_queue import inbox_row

_GRACE_SECONDS = 10.0


def stop(tx: Transaction, items: Any) -> list[Row]:
    for item in j.elements(items):
        _check_stop(item)
    answers = []
    for item in j.elements(items):
        stopped = stop_turn(tx, item)
        woken = stopped.pop("woken", [])
        answers.append({"turn_id": get_raw(item, "turn_id"), **bells(tx, woken), **stopped})
    return answers


def stop_runs(tx: Transaction, items: Any) -> list[Row]:
    for item in j.elements(items):
        _check_stop(j.joined(item, {"mode": "graceful"}) if get_text(item, "mode") == "close" else item)
    return [{"run_id": get_raw(item, "run_id"), **_stop_run(tx, item)} for item in j.elements(items)]


def _check_stop(item: Any) -> None:
    if get_text(item, "mode") not in ("force", "graceful"):
        raise SqlError("22023", f"mode must be force or graceful, not {get_text(item, 'mode')}")
    grace = j.parse_float(get_text(item, "grace_seconds"))
    if grace is not None and not 0 <= grace <= 86_400:
        raise SqlError("22023", "grace_seconds must be between 0 and 86400")
    reason = get_raw(item, "reason")
    if not (reason is None or isinstance(reason, str)) or reason == "":
        raise SqlError("22023", "reason must be a string that is not empty")
    if len((reason or "").encode()) > 1000:
        raise SqlError("22023", "reason must have at most 1000 bytes")
    if len((get_text(item, "actor") or "").encode()) > 200:
        raise SqlError("22023", "actor must have at most 200 bytes")


def stop_turn(tx: Transaction, item: Any) -> Row:
    """Stop one turn: at once, or at the next action of its worker within the grace period.

    Bugs: stop_no_check (K12), force_delayed.
    """
    turn_id, is_graceful = get_text(item, "turn_id"), get_text(item, "mode") == "graceful"
    turn = tx.tables.turns.get(turn_id)
    if turn is None:
        return {"outcome": "unknown_turn"}
    if turn["state"] == "done" and "stop_no_check" not in tx.bugs:
        return {"outcome": "already_done", "turn_outcome": turn["outcome"]}
    head, reason = tx.tables.heads[turn["agent_id"]], get_text(item, "reason")
    reason = "external_signal" if reason is None else reason
    grace = j.parse_float(get_text(item, "grace_seconds"))
    force_at = tx.now + interval(_GRACE_SECONDS if grace is None else grace)
    is_running = turn["state"] == "active" and head["status"] == "running"
    if is_graceful and (is_running or (turn["state"] == "active" and head["terminates"])):
        woken = _dispatch_stopped(tx, head)
        if head["force_at"] is None:
            _note_stop(tx, turn, item, reason, "pending")
        asked_at, before, given = (head[key] for key in ("stop_requested_at", "force_at", "stop_reason"))
        if before is None or before > force_at or "force_delayed" in tx.bugs:
            tx.update(tx.tables.heads, head, stop_requested_at=tx.now if asked_at is None else asked_at, force_at=force_at,
                      stop_reason=reason if given is None else given)  # fmt: skip
        soonest = force_at if before is None else min(before, force_at)
        owned = {} if head["owner"] is None else {"owner": head["owner"]}
        return {"outcome": "stopping", "force_at": timestamp(soonest), "woken": woken, **owned}
    owner = head["owner"] if is_running else None
    _note_stop(tx, turn, item, reason, "consumed")
    child_stop = {"mode": get_raw(item, "mode"), "grace_seconds": get_raw(item, "grace_seconds")}
    woken = end_by_kernel(tx, turn["agent_turn_id"], "canceled", "CANCELED", reason, child_stop=child_stop)
    return {"outcome": "stopped", "woken": distinct(woken), **({} if owner is None else {"owner": owner})}


def _dispatch_stopped(tx: Transaction, head: Row) -> list[str]:
    """Let a worker claim a suspended or deferred turn at once. Returns the agents that it woke."""
    was, since, turn_id = head["status"], head["moved_at"], head["active_agent_turn_id"]
    if was == "running" or (was == "dispatched" and head["due_at"] is None):
        return []
    tx.update(tx.tables.heads, head, status="dispatched", due_at=None, waiting_tool_count=0, resume_deadline=None,
              resumes_on=None, moved_at=max(tx.now, since))  # fmt: skip
    for row in tx.tables.inbox.of(turn_id):
        if row["status"] == "deferred" and row["next_retry_at"] > tx.now:
            tx.set(row, next_retry_at=tx.now)
    if was == "suspended":
        credit_human_wait_time(tx, tx.tables.turns[turn_id], since, resumes=True, with_open=True)
    return [str(head["agent_id"])]


def _note_stop(tx: Transaction, turn: Row, item: Any, reason: str, status: str) -> None:
    head = tx.tables.heads[turn["agent_id"]]
    actor = {} if get_text(item, "actor") is None else {"actor": get_raw(item, "actor")}
    seq = log(tx, turn["run_id"], turn["agent_turn_id"], [{
        "name": "halt", "agent": head["agent_name"], "parent": str(turn["activation_seq"]),
        "payload": {"reason": reason, "graceful": get_text(item, "mode") == "graceful"} | actor,
    }])  # fmt: skip
    inbox_id = tx.next("inbox_id")
    tx.insert(tx.tables.inbox, (turn["agent_turn_id"], inbox_id), inbox_row(
        tx, turn, inbox_id, "stop", status, signal_id(turn["run_id"], seq), actor=get_text(item, "actor"),
        turn_epoch=head["turn_epoch"] if turn["state"] == "active" else None,
        consumed_at=tx.now if status == "consumed" else None))  # fmt: skip


def _stop_run(tx: Transaction, item: Any) -> Row:
    run_id, reason = (get_text(item, key) for key in ("run_id", "reason"))
    run = tx.tables.runs.get(run_id)
    if run is None or run_id is None:
        return {"outcome": "unknown_run"}
    if run["status"] == "ended":
        return {"outcome": "already_done", "run_outcome": run["outcome"]}
    if get_text(item, "mode") == "close":
        return _close_session(tx, run, item)
    reason = "external_signal" if reason is None else reason
    was_running = run["status"] == "running"
    if was_running or _is_left_open(run):
        is_idle = get_text(run["memory"], "session") == "open" and run["open_turns"] == 0
        _log_terminating(tx, run_id, reason, item, is_pending=is_idle)
    if was_running or run["stop_reason"] is None:
        memory, why = run["memory"], run["stop_reason"]
        if not j.has(memory, "stopped_by"):
            memory = j.joined(memory, {"stopped_by": reason, "is_canceled": True})
        tx.update(tx.tables.runs, run, status="terminating", stop_reason=reason if why is None else why,
                  version=run["version"] + 1, updated_at=tx.now, memory=memory)  # fmt: skip
    body = {"mode": get_raw(item, "mode"), "grace_seconds": get_raw(item, "grace_seconds"), "reason": reason,
            "actor": get_raw(item, "actor")}  # fmt: skip
    order_stops(tx, run_id, body)
    return {"outcome": "stopping"}


def _is_left_open(run: Row) -> bool:
    is_stopped = run["status"] == "terminating" and get_text(run["memory"], "session") == "open"
    return bool(is_stopped and run["open_turns"] == run["pending_reactions"] == 0)


def _log_terminating(tx: Transaction, run_id: str, reason: str, item: Any, *, is_pending: bool) -> None:
    actor = {} if get_text(item, "actor") is None else {"actor": get_raw(item, "actor")}
    log(tx, run_id, None, [{"name": "workflow:terminating", "parent": root_id(tx.tables, run_id),
                            "payload": {"reason": reason} | actor, **({"is_pending": True} if is_pending else {})}])  # fmt: skip


def _close_session(tx: Transaction, run: Row, item: Any) -> Row:
    if get_text(run["memory"], "session") is None:
        return {"outcome": "no_session"}
    was_running = run["status"] == "running"
    if was_running or _is_left_open(run):
        _log_terminating(tx, run["run_id"], "closed", item, is_pending=True)
    if was_running:
        tx.update(tx.tables.runs, run, status="terminating", memory=j.joined(run["memory"], {"session": "closed"}),
                  updated_at=tx.now)  # fmt: skip
    return {"outcome": "stopping"}


# ---- sweep_stops ----


def sweep_stops(tx: Transaction, limit: int | None) -> Row:
    """End turns whose grace period is over, and deliver the stops in the outbox. Bug: no_stop_sweep."""
    check_sweep(limit)
    tables = tx.tables
    orders = [
        o for o in tables.outbox.values() if o["kind"] == "stop" and o["published_at"] is None and o["due_at"] <= tx.now
    ]
    ordered = [o["agent_turn_id"] for o in first(orders, lambda o: (o["due_at"], o["outbox_id"]), limit)]
    late = [h for h in tables.heads.values() if h["force_at"] is not None and h["force_at"] <= tx.now]
    due = [
        h["active_agent_turn_id"]
        for h in first(late, lambda h: (h["sweep_failures"], h["force_at"], h["agent_id"]), limit)
    ]
    due += [turn_id for turn_id in ordered if turn_id in tables.turns]
    answer = sweep_each(tx, [] if "no_stop_sweep" in tx.bugs else due, ("stopped", "stopping", "owners"), _sweep_stop)
    for failed in answer["failed"]:
        row = tables.outbox.get(f"stop:{failed['turn_id']}")
        if row is not None and row["published_at"] is None:
            tx.set(row, due_at=redelivery_at(tx, row["deliveries"]), deliveries=row["deliveries"] + 1)
    return answer


def _sweep_stop(tx: Transaction, agent_id: str, turn_id: str) -> Row:
    answer: Row = {}
    row, head = tx.tables.outbox.get(f"stop:{turn_id}"), tx.tables.heads[agent_id]
    if row is not None and row["published_at"] is None and row["due_at"] <= tx.now:
        tx.set(row, published_at=tx.now, deliveries=row["deliveries"] + 1)
        answer = stop_turn(tx, j.joined(row["body"], {"turn_id": turn_id}))
    if head["force_at"] is not None and head["force_at"] <= tx.now and head["active_agent_turn_id"] == turn_id:
        owner = head["owner"]
        answer = {"outcome": "stopped", "owner": owner, "woken": end_if_stopping(tx, agent_id)}
    if answer.get("outcome") not in ("stopped", "stopping"):
        return {}
    moved = {answer["outcome"]: turn_id, "woken": answer.get("woken") or []}
    return moved if answer.get("owner") is None else {**moved, "owners": answer["owner"]}
