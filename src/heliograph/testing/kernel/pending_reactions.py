"""List runs with pending reactions in memory, like 74_pending_reactions.sql. Answers have no size limit, because no simulated run comes near 128 MiB."""

from __future__ import annotations

from typing import Any

from heliograph.testing.kernel import jsonb as j
from heliograph.testing.kernel.claim import times_of
from heliograph.testing.kernel.head import is_pending, payload_of, signal_at
from heliograph.testing.kernel.jsonb import get_raw
from heliograph.testing.kernel.reactions import run_view
from heliograph.testing.kernel.sweep_batches import check_sweep, first
from heliograph.testing.kernel.tables import Row, timestamp
from heliograph.testing.kernel.transaction import Transaction


def sweep_pending_reactions(tx: Transaction, targets: Any, limit: int | None) -> list[Row]:
    check_sweep(limit)
    wanted = set(j.texts(targets))
    runs = [r for r in tx.tables.runs.values() if r["pending_reactions"] > 0 and r["target"] in wanted]
    return [_run_with_pending(tx, run) for run in first(runs, lambda r: (r["rejections"], r["run_id"]), limit)]


def _run_with_pending(tx: Transaction, run: Row) -> Row:
    signals = [
        {"seq": row["seq"] + n, "name": get_raw(entry, "name"), "payload": payload_of(entry), "agent": get_raw(entry, "agent"),
         "turn_id": row["agent_turn_id"], **_ended(tx, row["agent_turn_id"], entry)}
        for row in tx.tables.signals.of(run["run_id"]) if row["is_pending"]
        for n, entry in enumerate(row["entries"]) if is_pending(entry)
    ]  # fmt: skip
    view = run_view(tx, run)
    return {"target": run["target"], "run": view, "rejections": run["rejections"], "signals": signals or None}


def _ended(tx: Transaction, turn_id: str | None, entry: Any) -> Row:
    """The turn whose end a signal is, like `_ended_turn`."""
    if turn_id is None or get_raw(entry, "name") != "agent:failed":
        return {}
    turn = tx.tables.turns[turn_id]
    cause = signal_at(tx, turn["run_id"], turn["cause_seq"])
    claims = [
        lease["started_at"] for lease in tx.tables.leases.of(turn["agent_id"]) if lease["agent_turn_id"] == turn_id
    ]
    calls = [
        {"call_id": wait["tool_call_id"], **{key: wait[key] for key in ("tool", "kind", "state", "status", "epoch")}, **times_of(wait)}
        for wait in sorted(tx.tables.waits.of(turn_id), key=lambda w: int(w["position"]))
        if wait["kind"] != "inline" or wait["state"] == "closed"
    ]  # fmt: skip
    ended = {
        "parent_turn_id": turn["parent_turn_id"], "parent_call_id": turn["parent_call_id"],
        "cause_turn_id": None if cause is None else cause["turn_id"],
        "claimed_at": timestamp(min(claims)) if claims else None, "calls": calls,
    }  # fmt: skip
    return {"ended": ended}
