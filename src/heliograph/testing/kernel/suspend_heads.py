"""Suspend heads in memory, or keep their turns running, like 48_suspend_heads.sql, under the same names."""

from __future__ import annotations

from typing import Any

from heliograph.testing.kernel import jsonb as j
from heliograph.testing.kernel.human_tasks import begin_human_wait
from heliograph.testing.kernel.jsonb import get, get_text
from heliograph.testing.kernel.resolve import nearest, open_waits
from heliograph.testing.kernel.transaction import Transaction


def suspend_heads(tx: Transaction, item: Any) -> bool:
    """Suspend the head of a turn, unless a result has arrived that it waits for. Returns whether it is suspended.

    Bug: no_recheck (K16).
    """
    agent_id, turn_id = str(get_text(item, "agent_id")), str(get_text(item, "turn_id"))
    head, waits, phase = tx.tables.heads[agent_id], open_waits(tx, turn_id), get_text(item, "phase")
    resumes_on, seen = get_text(item, "join") or "all", j.parse_integer(get_text(item, "seen"))
    if "no_recheck" in tx.bugs:
        waits = [wait for wait in tx.tables.waits.of(turn_id) if wait["kind"] != "inline"]
    elif resumes_on == "each" and _has_news(tx, turn_id, seen):
        return False
    if not waits:
        return False
    lease = tx.tables.leases.get((agent_id, j.get_whole(item, "epoch")))
    if lease is not None:
        tx.set(lease, ended_at=max(tx.now, head["moved_at"]))
    begin_human_wait(tx, tx.tables.turns[turn_id], waits, max(tx.now, head["moved_at"]))
    for row in tx.tables.inbox.of(turn_id):
        if row["status"] == "processing" and row["payload"] is None:
            tx.set(row, status="consumed", consumed_at=tx.now)
    tx.update(
        tx.tables.heads, head, status="suspended", owner=None, lease_until=None, phase=head["phase"] if phase is None else phase,
        waiting_tool_count=len(waits), resume_deadline=nearest(waits), resumes_on=resumes_on, expecting_correlation_id=None,
        terminates=get(item, "terminates") is True,
        moved_at=max(tx.now, head["moved_at"]),
    )  # fmt: skip
    return True


def keep_running(tx: Transaction, item: Any, first: int | None) -> None:
    agent_id, turn_id, epoch = (
        str(get_text(item, "agent_id")),
        str(get_text(item, "turn_id")),
        j.get_whole(item, "epoch"),
    )
    head, phase, drafts = tx.tables.heads[agent_id], get_text(item, "phase"), get(item, "signals")
    lease, emitted = tx.tables.leases[agent_id, epoch], j.parse_integer(get_text(item, "signals_emitted"))
    count = 0 if drafts is None else j.length(drafts)
    if count and not (emitted is not None and lease["signals_emitted"] > emitted):
        tx.set(lease, signals_emitted=lease["signals_emitted"] + count, last_append_seq=first)
    for row in tx.tables.inbox.of(turn_id):
        if row["applied"] and row["status"] == "pending":
            tx.set(row, status="processing", turn_epoch=epoch)
    if phase is not None and head["phase"] is not None and head["phase"] != phase:
        tx.update(tx.tables.heads, head, phase=phase)


def _has_news(tx: Transaction, turn_id: str, seen: int | None) -> bool:
    if seen is None:
        return any(row["applied"] and row["status"] == "pending" for row in tx.tables.inbox.of(turn_id))
    return any((w["resolved_position"] or 0) > seen for w in tx.tables.waits.of(turn_id))
