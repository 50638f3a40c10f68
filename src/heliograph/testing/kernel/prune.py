"""The functions of 75_prune and 76_prune_logs.sql for the in-memory kernel, under the same names without the underscore."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from heliograph.testing.kernel.callbacks import is_called_back
from heliograph.testing.kernel.jsonb import Refusal, get_text
from heliograph.testing.kernel.sweep_batches import first
from heliograph.testing.kernel.tables import Row, Table, Transaction, microseconds

_MONTH = 30 * 86_400 * 1_000_000


def prune(tx: Transaction, before: datetime, limit: int) -> Row:
    if not 1 <= limit <= 10_000:
        raise Refusal("22023", f"limit must be between 1 and 10000, not {limit}")
    at = microseconds(before)
    if not at < tx.now:
        raise Refusal("22023", f"prune before a time that is past, not {before}")
    turns = _old_turns(tx, at, limit)
    done = (
        _prune_turns(tx, turns)
        | _prune_logs(tx, {str(turn["run_id"]) for turn in turns}, at, limit)
        | _prune_contexts(tx, at, limit)
        | _prune_rest(tx, at, limit)
        | {"memories": 0}  # only PostgreSQL keeps memories
    )
    return done | {"more": any(count >= limit for kind, count in done.items() if kind != "cards")}


def _oldest(rows: list[Row]) -> list[Row]:
    """By created_at, and of those begun at once the greatest id first, as the index of runs has it."""
    return sorted(sorted(rows, key=lambda r: str(r["run_id"]), reverse=True), key=lambda r: int(r["created_at"]))


# ---- turns ----


def _old_turns(tx: Transaction, before: int, limit: int) -> list[Row]:
    tables, turns = tx.tables, list[Row]()
    for run in _oldest([r for r in tables.runs.values() if r["created_at"] < before]):
        seen = first(
            [t for t in tables.turns.values() if t["run_id"] == run["run_id"]], lambda t: t["queue_seq"], 10 * limit
        )
        turns += [t for t in seen if t["state"] == "done" and t["finished_at"] < before
                  and not _is_needed(tx, t["agent_turn_id"])][:limit]  # fmt: skip
    return turns[:limit]


def _prune_turns(tx: Transaction, turns: list[Row]) -> Row:
    tables, ids = tx.tables, {t["agent_turn_id"] for t in turns}
    for turn_id in sorted(ids):
        tx.offer(tables.pruned, f"turn:{turn_id}", {
            "id": f"turn:{turn_id}", "hash": None, "outcome": tables.turns[turn_id]["outcome"], "pruned_at": tx.now})  # fmt: skip
    _delete(
        tx,
        tables.leases,
        lambda row: row["agent_turn_id"] in ids and row["turn_epoch"] <= _last_epoch(tx, turns, row["agent_id"]),
    )
    keys = {f"{prefix}:{turn_id}" for turn_id in ids for prefix in ("evt", "report", "stop")}
    keys |= {f"cmd:{w['agent_turn_id']}:{w['tool_call_id']}" for turn_id in ids for w in tables.waits.of(turn_id)}
    _delete(tx, tables.outbox, lambda row: row["key"] in keys and row["published_at"] is not None)
    boxes = {box_id for turn_id in ids for box_id in _boxes_of(tx, turn_id)}
    cards = _delete(tx, tables.cards, lambda row: row["box_id"] in boxes)
    _delete(tx, tables.boxes, lambda row: row["writer_turn_id"] in ids)
    _delete(tx, tables.budgets, lambda row: row["turn_id"] in ids)
    _delete(tx, tables.callbacks, lambda row: row["turn_id"] in ids)
    for table in (tables.waits, tables.inbox, tables.edges, tables.turns):
        _delete(tx, table, lambda row: row["agent_turn_id"] in ids)
    agents = {t["agent_id"] for t in turns if _is_own_instance(t)}
    _delete(
        tx,
        tables.heads,
        lambda h: h["agent_id"] in agents and h["status"] == "idle" and not tables.turns.of(h["agent_id"]),
    )
    return {"turns": len(ids), "cards": cards}


def _is_own_instance(turn: Row) -> bool:
    """Whether its agent was made for it alone: an instance that is called after the call."""
    parts, call_id = turn["agent_id"].split("/"), turn["parent_call_id"]
    return len(parts) > 2 and call_id is not None and parts[2][-160:] == f"{turn['parent_turn_id']}-{call_id}"[-160:]


def _last_epoch(tx: Transaction, turns: list[Row], agent_id: str) -> int:
    cards = (tx.tables.cards.get(t["deliverable_card_id"]) for t in turns if t["agent_id"] == agent_id)
    return max((int(c["turn_epoch"]) for c in cards if c is not None), default=-1)


def _delete(tx: Transaction, table: Table, goes: Any) -> int:
    keys = [key for key, row in table.items() if goes(row)]
    for key in keys:
        tx.delete(table, key)
    return len(keys)


def _boxes_of(tx: Transaction, turn_id: str) -> list[str]:
    return [f"box_{turn_id}", *(b["box_id"] for b in tx.tables.boxes.values() if b["writer_turn_id"] == turn_id)]


def _is_needed(tx: Transaction, turn_id: str) -> bool:
    tables = tx.tables
    keys = [f"evt:{turn_id}", f"report:{turn_id}", f"stop:{turn_id}"]
    keys += [f"cmd:{turn_id}:{w['tool_call_id']}" for w in tables.waits.of(turn_id)]
    if any(key in tables.outbox and tables.outbox[key]["published_at"] is None for key in keys):
        return True
    if is_called_back(tx, f"turn:{turn_id}"):
        return True
    mine = set(_boxes_of(tx, turn_id))
    return any(b["base_box_id"] in mine and b["writer_turn_id"] != turn_id for b in tables.boxes.values()) or any(
        t["context_box_id"] in mine and t["agent_turn_id"] != turn_id for t in tables.turns.values()
    )


# ---- logs ----


def _prune_logs(tx: Transaction, run_ids: set[str], before: int, limit: int) -> Row:
    signals = runs = 0
    old = _oldest([r for r in tx.tables.runs.values() if r["created_at"] < before])
    run_ids = run_ids | {str(r["run_id"]) for r in old[: 10 * limit]}
    for run in [r for r in old if r["run_id"] in run_ids and _may_shrink(tx, r, before)]:
        if signals >= limit or runs >= limit:
            break
        signals += _shorten_log(tx, run, before, limit - signals)
        runs += _forget_run(tx, run)
    return {"signals": signals, "runs": runs}


def _may_shrink(tx: Transaction, run: Row, before: int) -> bool:
    if run["status"] == "ended":
        return bool(run["ended_at"] < before) and not any(
            t["run_id"] == run["run_id"] for t in tx.tables.turns.values()
        )
    rows = tx.tables.signals.of(run["run_id"])
    return any(s["seq"] == run["pruned_seq"] + 1 and s["at"] < before for s in rows)


def _shorten_log(tx: Transaction, run: Row, before: int, limit: int) -> int:
    """Bug: prune_needed (the causes of turns that are left go, too)."""
    run_id, rows = run["run_id"], sorted(tx.tables.signals.of(run["run_id"]), key=lambda s: int(s["seq"]))
    turns = [t for t in tx.tables.turns.values() if t["run_id"] == run_id]
    needed = [min(t["cause_seq"], t["activation_seq"]) for t in turns] + [s["seq"] for s in rows if s["owed"]]
    needed = [] if "prune_needed" in tx.bugs else needed
    gone = []
    for row in rows[:limit]:
        end = row["seq"] + row["count"]
        if row["at"] >= before or (needed and end > min(needed)):
            break
        gone.append(row)
    for row in gone:
        tx.delete(tx.tables.signals, (run_id, row["seq"]))
    if gone:
        tx.set(run, pruned_seq=gone[-1]["seq"] + gone[-1]["count"] - 1)
    return len(gone)


def _forget_run(tx: Transaction, run: Row) -> int:
    run_id = run["run_id"]
    has_turns = any(t["run_id"] == run_id for t in tx.tables.turns.values())
    if run["status"] != "ended" or has_turns or tx.tables.signals.of(run_id) or is_called_back(tx, f"run:{run_id}"):
        return 0
    _delete(tx, tx.tables.callbacks, lambda row: row["run_id"] == run_id and row["turn_id"] is None)
    _delete(tx, tx.tables.heads, lambda h: h["agent_id"].startswith(f"{run_id}/"))
    tx.offer(tx.tables.pruned, f"run:{run_id}", {
        "id": f"run:{run_id}", "hash": run["request_hash"], "outcome": run["outcome"], "pruned_at": tx.now})  # fmt: skip
    tx.delete(tx.tables.runs, run_id)
    return 1


# ---- what is left ----


def _prune_contexts(tx: Transaction, before: int, limit: int) -> Row:
    tables = tx.tables
    read = {t["context_box_id"] for t in tables.turns.values()} | {b["base_box_id"] for b in tables.boxes.values()}
    old = [
        b
        for b in tables.boxes.values()
        if b["kind"] == "context" and b["created_at"] < before and b["box_id"] not in read
    ]
    ids = {b["box_id"] for b in first(old, lambda b: (b["created_at"], b["box_id"]), limit)}
    _delete(tx, tables.cards, lambda card: card["box_id"] in ids)
    _delete(tx, tables.boxes, lambda box: box["box_id"] in ids)
    return {"boxes": len(ids)}


def _prune_rest(tx: Transaction, before: int, limit: int) -> Row:
    tables = tx.tables
    used = {get_text(c["content"], "$blob") for c in tables.cards.values()}
    old = [b for b in tables.blobs.values() if b["created_at"] < before and b["blob_id"] not in used]
    blobs = {b["blob_id"] for b in first(old, lambda b: (b["created_at"], b["blob_id"]), limit)}
    stones = first([p for p in tables.pruned.values() if p["pruned_at"] < before - _MONTH],
                   lambda p: (p["pruned_at"], p["id"]), limit)  # fmt: skip
    _delete(tx, tables.blobs, lambda blob: blob["blob_id"] in blobs)
    for stone in stones:
        tx.delete(tables.pruned, stone["id"])
    return {"blobs": len(blobs), "tombstones": len(stones)}
