"""Claim turns and renew their leases in memory, like 40_claim.sql, under the same names."""

from __future__ import annotations

from typing import Any, TypeAlias

from heliograph.control.pool_names import DEFAULT_POOL
from heliograph.ids import signal_id
from heliograph.testing.kernel import jsonb as j
from heliograph.testing.kernel.budgets import remaining
from heliograph.testing.kernel.head import owns, signal_at
from heliograph.testing.kernel.ids import check_phase
from heliograph.testing.kernel.jsonb import ABSENT, SqlError, get, get_text
from heliograph.testing.kernel.limits import (
    content_of,
    limits,
)
from heliograph.testing.kernel.reactions import run_view
from heliograph.testing.kernel.tables import Row, interval, result_of, timestamp
from heliograph.testing.kernel.transaction import Transaction

_Target: TypeAlias = tuple[str | None, str, Any, str | None]  # the name, the pool, the agents, the run


def claim(tx: Transaction, targets: Any, worker: str, limit: int, lease_seconds: float) -> list[Row]:
    """Claim dispatched turns for a worker, each under the next epoch with a lease. Bugs: running_unbounded, any_pool."""
    _check_lease(lease_seconds)
    if worker is None or not 1 <= len(worker.encode()) <= 200:
        raise SqlError("22023", "the name of a worker must have 1 to 200 bytes")
    if not 1 <= limit <= 1000:
        raise SqlError("22023", f"limit must be between 1 and 1000, not {limit}")
    running_max = limits(tx)["running_max"]
    if running_max is not None and "running_unbounded" not in tx.bugs:
        limit = max(0, min(limit, running_max - sum(h["status"] == "running" for h in tx.tables.heads.values())))
    dispatched = [h for h in tx.tables.heads.values() if h["status"] == "dispatched"]
    ready: list[Row] = []
    for target in _distinct_targets(targets):
        found = [h for h in dispatched if _is_wanted(tx, h, target)]
        ready += sorted((h for h in found if h["due_at"] is None), key=_place_in_line)[:limit]
        due = (h for h in found if h["due_at"] is not None and h["due_at"] <= tx.now)
        ready += sorted(due, key=_place_in_line)[:limit]
    ready.sort(key=_place_in_line)
    taken = {h["agent_id"]: h for h in ready[:limit]}
    inbox = {agent_id: _take(tx, head, worker, lease_seconds) for agent_id, head in taken.items()}
    return [_claimed(tx, h, inbox[h["agent_id"]]) for h in sorted(taken.values(), key=_place_in_line)]


def _place_in_line(head: Row) -> tuple[Any, ...]:
    return -head["priority"], head["ready_at"], head["agent_id"]


def _distinct_targets(targets: Any) -> list[_Target]:
    found: list[_Target] = []
    for item in j.elements(targets):
        pool = get_text(item, "pool")
        key = (
            get_text(item, "target"),
            DEFAULT_POOL if pool is None else pool,
            get(item, "agents"),
            get_text(item, "run_id"),
        )
        if key not in found:
            found.append(key)
    return found


def _is_wanted(tx: Transaction, head: Row, target: _Target) -> bool:
    name, pool, agents, run_id = target
    return (
        head["target"] == name
        and (head["pool"] == pool or "any_pool" in tx.bugs)
        and (agents is ABSENT or j.has(agents, head["agent_name"]))
        and run_id in (None, head["run_id"])
    )


def _take(tx: Transaction, head: Row, worker: str, lease_seconds: float) -> list[Row]:
    """Claim one turn: return its inbox rows that are due. Bug: no_bump."""
    bump = 0 if "no_bump" in tx.bugs else 1
    tx.update(
        tx.tables.heads, head, status="running", turn_epoch=head["turn_epoch"] + bump, owner=worker,
        phase="init" if head["phase"] is None else head["phase"], lease_until=tx.now + interval(lease_seconds), due_at=None,
        moved_at=max(tx.now, head["moved_at"]),
    )  # fmt: skip
    agent_id, epoch = head["agent_id"], head["turn_epoch"]
    tx.insert(tx.tables.leases, (agent_id, epoch), {
        "agent_id": agent_id, "turn_epoch": epoch, "agent_turn_id": head["active_agent_turn_id"], "owner": worker,
        "started_at": head["moved_at"], "ended_at": None, "signals_emitted": 0, "last_append_seq": None,
        "started_seq": tx.tables.runs[head["run_id"]]["signal_seq"],
    })  # fmt: skip
    taken = []
    for row in tx.tables.inbox.of(head["active_agent_turn_id"]):
        is_due = row["status"] in ("pending", "deferred") and row["next_retry_at"] <= head["moved_at"]
        if is_due and row["payload"] is None:
            tx.set(row, status="processing", turn_epoch=epoch)
            taken.append(row)
    taken.sort(key=lambda row: (row["next_retry_at"], row["created_at"], row["inbox_id"]))
    turn = tx.tables.turns[head["active_agent_turn_id"]]
    cause_id = signal_id(turn["run_id"], turn["cause_seq"])
    return [{"message_type": row["message_type"], "correlation_id": row["correlation_id"] or cause_id} for row in taken]


def _claimed(tx: Transaction, head: Row, inbox: list[Row]) -> Row:
    turn = tx.tables.turns[head["active_agent_turn_id"]]
    row = claim_of(tx, head, turn, inbox)
    leases = [lease for lease in tx.tables.leases.of(head["agent_id"])
              if lease["agent_turn_id"] == turn["agent_turn_id"] and lease["turn_epoch"] < head["turn_epoch"]]  # fmt: skip
    if leases:
        first = min(lease["started_at"] for lease in leases)
        row["has_emitted_signals"] = any(lease["signals_emitted"] > 0 for lease in leases)
        row["earlier_epoch"] = max(lease["turn_epoch"] for lease in leases)
        row["age_seconds"] = (head["moved_at"] - first) / 1_000_000
    return row


def claim_of(tx: Transaction, head: Row, turn: Row, inbox: list[Row]) -> Row:
    """Return a turn as its owner receives it, without what its earlier owners did."""
    run_id = turn["run_id"]
    return {
        "agent_id": head["agent_id"], "agent": head["agent_name"], "run_id": run_id, "target": head["target"],
        "turn_id": turn["agent_turn_id"], "epoch": head["turn_epoch"], "priority": head["priority"],
        "phase": head["phase"], "attempts": turn["attempts"], "max_attempts": turn["max_attempts"],
        "defer_count": turn["defer_count"], "ttl_seconds": (turn["expires_at"] - tx.now) / 1_000_000,
        "context_box_id": turn["context_box_id"], "output_box_id": turn["output_box_id"],
        "activation_id": signal_id(run_id, turn["activation_seq"]), "cause": signal_at(tx, run_id, turn["cause_seq"]),
        "inbox": inbox, "run": run_view(tx, tx.tables.runs[run_id]), "waits": waits_of(tx, turn["agent_turn_id"]),
        **{key: turn[key] for key in ("result_fields", "parent_turn_id", "depth", "message_type")},
        "has_emitted_signals": False, "age_seconds": 0, "earlier_epoch": None,
        "stop": None if head["stop_requested_at"] is None else stop_order(head)["stop"],
        "budget": None if turn["budgets"] is None else remaining(tx, turn["budgets"]),
    }  # fmt: skip


def stop_order(head: Row) -> Row:
    """Return a pending graceful stop for the owner of the turn, like `_stop_order`."""
    return {"stop": {"reason": head["stop_reason"], "requested_at": timestamp(head["stop_requested_at"])}}


def waits_of(tx: Transaction, turn_id: str) -> list[Row]:
    """Return the recorded calls of a turn, like `_waits`."""
    found = []
    for wait in sorted(tx.tables.waits.of(turn_id), key=lambda w: int(w["position"])):
        card = tx.tables.cards.get(result_of(turn_id, wait["tool_call_id"]))
        found.append({
            "call_id": wait["tool_call_id"], "card_id": None if card is None else card["card_id"],
            "content": None if card is None else content_of(tx, card["content"]),
            **{key: wait[key] for key in ("step_id", "tool", "kind", "effect", "state", "status", "resolved_position",
                                          "after_execution", "may_override", "epoch", "taint")},
            **(dict.fromkeys(("opened_at", "resolved_at")) if wait["kind"] == "inline" else times_of(wait)),
        })  # fmt: skip
    return found


def times_of(wait: Row) -> Row:
    """Return when a call was opened and resolved."""
    return {key: None if wait[key] is None else timestamp(wait[key]) for key in ("opened_at", "resolved_at")}


def _check_lease(lease_seconds: float) -> None:
    if not 0.1 <= lease_seconds <= 86_400:
        raise SqlError("22023", f"a lease must last between 0.1 and 86400 seconds, not {lease_seconds}")


def renew(tx: Transaction, items: Any, lease_seconds: float) -> list[Row]:
    """Renew the leases of running turns, and deliver pending stops to their workers. Bug: stop_not_delivered."""
    _check_lease(lease_seconds)
    listed, answer = j.elements(items), []
    for item in listed:
        check_phase(item)
    for item in listed:
        j.get_whole(item, "epoch")
    for item in listed:
        row: Row = {"turn_id": get_text(item, "turn_id"), "outcome": "stale"}
        if owns(tx, item):
            head, phase = tx.tables.heads[get_text(item, "agent_id")], get_text(item, "phase")
            tx.update(
                tx.tables.heads,
                head,
                lease_until=tx.now + interval(lease_seconds),
                phase=head["phase"] if phase is None else phase,
            )
            row["outcome"] = "ok"
            if head["stop_requested_at"] is not None and "stop_not_delivered" not in tx.bugs:
                row |= stop_order(head)
        answer.append(row)
    return answer
