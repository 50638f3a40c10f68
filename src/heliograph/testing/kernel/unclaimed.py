"""End turns that no worker claims in time, in memory, like 47_unclaimable.sql and 73_unclaimed.sql, under the same names."""

from __future__ import annotations

from collections.abc import Collection

from heliograph.testing.kernel.endings import end_by_kernel, end_if_stopping
from heliograph.testing.kernel.limits import limits
from heliograph.testing.kernel.sweep_batches import first
from heliograph.testing.kernel.tables import Row, interval
from heliograph.testing.kernel.transaction import Transaction


def fail_unclaimable(_tx: Transaction, _targets: object) -> Row:
    """Does nothing: no value in memory is too large for a reply, so every turn can be claimed."""
    return {}


def unclaimed(tx: Transaction, others: Collection[str], limit: int | None) -> list[str]:
    """List turns that no worker has claimed in time. Bug: no_dispatch_timeout."""
    if "no_dispatch_timeout" in tx.bugs:
        return []
    late = [h for h in tx.tables.heads.values() if _is_late(tx, h) and h["active_agent_turn_id"] not in others]
    at_once = first(
        [h for h in late if h["due_at"] is None], lambda h: (h["sweep_failures"], h["moved_at"], h["agent_id"]), limit
    )
    rest = None if limit is None else limit - len(at_once)
    deferred = first(
        [h for h in late if h["due_at"] is not None], lambda h: (h["sweep_failures"], h["due_at"], h["agent_id"]), rest
    )
    return [h["active_agent_turn_id"] for h in (*at_once, *deferred)]


def sweep_unclaimed(tx: Transaction, agent_id: str, turn_id: str) -> Row | None:
    head = tx.tables.heads[agent_id]
    if head["active_agent_turn_id"] != turn_id or not _is_late(tx, head):
        return None
    woken = end_if_stopping(tx, agent_id)
    if woken is None:
        woken = end_by_kernel(tx, turn_id, "timeout", "TIMEOUT", unclaimed_message(tx, head), {"scope": "turn"})
    return {"ended": turn_id, "woken": woken}


def unclaimed_message(tx: Transaction, head: Row) -> str:
    seconds, running_max = (limits(tx)[name] for name in ("dispatch_seconds_max", "running_max"))
    if running_max is not None and sum(h["lease_until"] is not None for h in tx.tables.heads.values()) >= running_max:
        return (
            f"it did not begin within {seconds} s (dispatch_seconds_max), because the project runs at most {running_max} "
            "turns at once (running_max): raise a limit, or send less"
        )
    return f"no worker of pool {head['pool']} claimed it within {seconds} s (dispatch_seconds_max)"


def _is_late(tx: Transaction, head: Row) -> bool:
    seconds = limits(tx)["dispatch_seconds_max"]
    if seconds is None or head["status"] != "dispatched":
        return False
    since: int = head["moved_at"] if head["due_at"] is None else head["due_at"]
    return bool(since <= tx.now - interval(seconds))
