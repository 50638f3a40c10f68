"""The twin of 92_liveness.sql: the same findings under the same names."""

from __future__ import annotations

from collections.abc import Iterator

from heliograph.testing.kernel.tables import Project, Row, Transaction, interval, timestamp

Late = Iterator[tuple[str, str, int]]  # which check, about what, since when

_MOST = 100  # findings of a kind
_GRACE, _PATIENCE = interval(10), interval(60)


def liveness(tx: Transaction) -> list[Row]:
    by_check: dict[str, list[tuple[int, str]]] = {}
    for late in (_heads, _turns, _orders):
        for check, subject, since in late(tx.tables, tx.now - _GRACE, tx.now - _PATIENCE):
            by_check.setdefault(check, []).append((since, subject))
    return [
        {"check": check, "subject": subject, "since": timestamp(since)}
        for check, found in sorted(by_check.items())
        for since, subject in sorted(found)[:_MOST]
    ]


def _heads(tables: Project, grace: int, patience: int) -> Late:
    for agent_id, head in tables.heads.items():
        if head["status"] == "running" and head["lease_until"] < grace:
            yield "L1 a lease ran out: sweep_leases", agent_id, head["lease_until"]
        if head["status"] == "dispatched" and head["due_at"] is None and head["moved_at"] < patience:
            yield "L2 nobody claims a turn that is ready: a worker, sweep_bells", agent_id, head["moved_at"]
        if head["due_at"] is not None and head["due_at"] < patience:
            yield "L3 nobody claims a deferred turn: a worker, sweep_bells", agent_id, head["due_at"]
        queued = tables.queued(agent_id)
        if head["status"] == "idle" and queued and queued[0]["created_at"] < grace:
            yield "L5 a turn waits for an idle agent: sweep_queued", agent_id, queued[0]["created_at"]
        if head["force_at"] is not None and head["force_at"] < grace:
            yield "L7 a stop is not carried out: sweep_stops", agent_id, head["force_at"]


def _turns(tables: Project, grace: int, _patience: int) -> Late:
    for wait in tables.waits.values():
        is_open = wait["state"] == "open" and wait["kind"] != "inline"
        if is_open and wait["deadline"] is not None and wait["deadline"] < grace:
            subject = f"{wait['agent_turn_id']} {wait['tool_call_id']}"
            yield "L4 a call is overdue: sweep_waits", subject, wait["deadline"]
    for turn_id, turn in tables.turns.items():
        if turn["state"] != "done" and turn["people_since"] is None and turn["expires_at"] < grace:
            yield "L6 a turn has outlived its time: sweep_expired", turn_id, turn["expires_at"]


def _orders(tables: Project, grace: int, patience: int) -> Late:
    for key, row in tables.outbox.items():
        if row["published_at"] is not None:
            continue
        if row["kind"] in ("report", "stop") and row["due_at"] < grace:
            yield "L8 an order is not carried out: sweep_stops, sweep_reports", key, row["due_at"]
        if row["kind"] == "task_event" and row["due_at"] < patience:
            yield "L9 an event is not published: the relay", key, row["due_at"]
    for run_id, run in tables.runs.items():
        if run["owed"] > 0 and run["updated_at"] < patience:
            yield "L10 a reaction is owed: sweep_pending_reactions", run_id, run["updated_at"]
    for callback_id, row in tables.callbacks.items():
        if row["due_at"] is not None and row["due_at"] < patience:
            yield "L11 nobody sends a callback: a worker with HELIOGRAPH_WEBHOOK_SECRETS", callback_id, row["due_at"]
