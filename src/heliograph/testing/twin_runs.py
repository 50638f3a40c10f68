"""The twin of 10_log, 20_head, 30_runs, 31_start, 32_enqueue and 60_react.sql: functions of the same names.

Locks are not mirrored: the twin runs one call at a time. Each function says only
where it has a bug to re-open; what it does is said in the SQL.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from heliograph.ids import signal_id
from heliograph.testing import twin_json as j
from heliograph.testing.twin_json import ABSENT, Refusal, get, get_text
from heliograph.testing.twin_tables import Row, Transaction, interval, microseconds

_TTL_MIN, _TTL_MAX = 1e-6, 31_622_400


def write_signals(tx: Transaction, run_id: str, base: int, turn_id: str | None, drafts: Any) -> int:
    items = j.elements(drafts)
    for n, draft in enumerate(items, 1):
        parent = get(draft, "parent")
        is_index = isinstance(parent, int | float) and not isinstance(parent, bool)
        payload = get(draft, "payload")
        tx.insert(tx.tables.signals, (run_id, base + n), {
            "run_id": run_id, "seq": base + n, "name": get_text(draft, "name"),
            "payload": {} if payload is ABSENT else payload, "at": _at(tx, draft), "agent": get_text(draft, "agent"),
            "parent_id": signal_id(run_id, base + 1 + (j.whole(parent) or 0)) if is_index else j.text(parent),
            "agent_turn_id": turn_id, "owed": bool(j.parse_boolean(get_text(draft, "owed"))),
        })  # fmt: skip
    return len(items)


def _at(tx: Transaction, draft: Any) -> int:
    said = get_text(draft, "at")
    try:
        return tx.now if said is None else microseconds(datetime.fromisoformat(said))
    except ValueError:
        raise Refusal("22007", f"invalid input syntax for type timestamp with time zone: {said!r}") from None


def dispatch_next(tx: Transaction, agent_ids: Iterable[str]) -> list[str]:
    """Bug: dispatch_lifo."""
    tables, targets = tx.tables, set()
    for agent_id in sorted(set(agent_ids)):
        head = tables.heads.get(agent_id)
        queued = tables.queued(agent_id) if head is not None and head["status"] == "idle" else []
        if head is None or not queued:
            continue
        turn = queued[-1 if "dispatch_lifo" in tx.bugs else 0]
        tx.update(
            tables.heads, head, status="dispatched", turn_epoch=head["turn_epoch"] + 1,
            active_agent_turn_id=turn["agent_turn_id"], priority=turn["priority"], ready_at=tx.now,
            trace_id=turn["run_id"], parent_step_id=signal_id(turn["run_id"], turn["activation_seq"]), moved_at=max(tx.now, head["moved_at"]),
        )  # fmt: skip
        if any(t["agent_id"] == agent_id and t["state"] == "active" for t in tables.turns.values()):
            raise Refusal("23505", f"{agent_id} has an active turn already")
        tx.set(turn, state="active")
        for row in tables.inbox.values():
            if row["agent_turn_id"] == turn["agent_turn_id"] and row["status"] == "queued":
                tx.set(row, status="pending", turn_epoch=head["turn_epoch"], next_retry_at=tx.now)
        targets.add(head["target"])
    return sorted(targets)


def owns(tx: Transaction, agent_id: str | None, turn_id: str | None, epoch: int | None) -> bool:
    head = tx.tables.heads.get(agent_id)
    return (
        head is not None and head["status"] == "running" and turn_id is not None
        and head["active_agent_turn_id"] == turn_id and head["turn_epoch"] == epoch
    )  # fmt: skip


def run_view(tx: Transaction, run_id: str) -> Row | None:
    """Bug: ends_with_open_turns (the view shows one open turn at most)."""
    run = tx.tables.runs.get(run_id)
    if run is None:
        return None
    keys = ("run_id", "status", "version", "state", "memory", "open_turns", "owed", "activations")
    view = {key: run[key] for key in keys}
    if "ends_with_open_turns" in tx.bugs:
        view["open_turns"] = min(view["open_turns"], 1)
    return view


def enqueue_turns(tx: Transaction, run_id: str, activations: list[Row]) -> None:
    """`_enqueue`: `activations` as `place` answers them."""
    tables = tx.tables
    for item in activations:
        check_limits(item)
    for item in activations:
        _insert_turn(tx, run_id, item)
    for item in activations:
        if f"{run_id}/{get_text(item, 'agent')}" not in tables.heads:
            raise Refusal("23503", f"run {run_id} has no agent {get_text(item, 'agent')}")
    for item in activations:
        turn = tables.turns[get_text(item, "turn_id")]
        inbox_id = tx.next("inbox_id")
        tx.insert(tables.inbox, inbox_id, {
            "inbox_id": inbox_id, "agent_id": turn["agent_id"], "agent_turn_id": turn["agent_turn_id"],
            "message_type": "turn", "status": "queued", "turn_epoch": None,
            "correlation_id": signal_id(run_id, turn["cause_seq"]), "payload_box_id": turn["context_box_id"],
            "next_retry_at": tx.now, "retry_count": 0, "defer_reason": None, "created_at": tx.now, "consumed_at": None,
        })  # fmt: skip
    for item in activations:
        edge_id = tx.next("edge_id")
        tx.insert(tables.edges, edge_id, {
            "edge_id": edge_id, "primitive": "enqueue", "edge_phase": "request", "run_id": run_id,
            "agent_id": f"{run_id}/{get_text(item, 'agent')}", "agent_turn_id": get_text(item, "turn_id"),
            "cause_id": signal_id(run_id, item["cause"]), "created_at": tx.now,
        })  # fmt: skip


def _insert_turn(tx: Transaction, run_id: str, item: Row) -> None:
    agent, turn_id = get_text(item, "agent"), get_text(item, "turn_id")
    priority = j.parse_integer(get_text(item, "priority"))
    ttl = j.parse_float(get_text(item, "ttl_seconds"))
    tx.insert(tx.tables.turns, turn_id, {
        "agent_turn_id": turn_id, "agent_id": None if agent is None else f"{run_id}/{agent}", "run_id": run_id,
        "queue_seq": tx.next("queue_seq"), "state": "queued", "outcome": None,
        "priority": 1 if priority is None else priority, "attempts": 0,
        "max_attempts": j.parse_integer(get_text(item, "max_attempts")), "cause_seq": item["cause"],
        "activation_seq": item["activation"], "context_box_id": get_text(item, "context_box_id"),
        "output_box_id": None if turn_id is None else f"box_{turn_id}",
        "deliverable_card_id": None, "created_at": tx.now, "expires_at": None if ttl is None else tx.now + interval(ttl),
        "finished_at": None,
    })  # fmt: skip


def place(activations: Any, base: int) -> list[Row]:
    placed = []
    for item in j.elements(activations):
        if not isinstance(item, dict):
            raise Refusal("22023", "an activation is an object")
        cause = j.get_whole(get(item, "cause"), "seq")
        if cause is None and (index := j.get_whole(item, "cause")) is not None:
            cause = base + 1 + index
        activation = j.get_whole(item, "activation")
        placed.append({**item, "cause": cause, "activation": None if activation is None else base + 1 + activation})
    return placed


def react_to(
    tx: Transaction, run_id: str, turn_id: str | None, closed: int, signals: Any, reaction: Any
) -> list[str]:  # fmt: skip
    """`_react`."""
    run = tx.tables.runs[run_id]
    is_over = run["status"] == "ended"
    activations = get(reaction, "activations")
    activations = [] if activations is ABSENT else activations
    base = run["signal_seq"]
    written = write_signals(tx, run_id, base, turn_id, signals)
    count, owed = len(j.elements(activations)), count_owed(signals)
    if is_over:
        raise Refusal("23514", f"run {run_id} has ended, and ends only once")
    state, memory = get(reaction, "state"), get(reaction, "memory")
    status = get_text(reaction, "status")
    tx.update(
        tx.tables.runs, run, signal_seq=base + written, version=run["version"] + 1,
        open_turns=run["open_turns"] - closed + count, activations=run["activations"] + count,
        owed=run["owed"] + owed,
        state=run["state"] if state is ABSENT else state, memory=run["memory"] if memory is ABSENT else memory,
        status=run["status"] if status is None else status, outcome=get_text(reaction, "outcome"),
        ended_at=tx.now if status == "ended" else None, updated_at=tx.now,
    )  # fmt: skip
    if not activations:
        return []
    enqueue_turns(tx, run_id, place(activations, base))
    return dispatch_next(tx, [f"{run_id}/{get_text(item, 'agent')}" for item in activations])


def count_owed(drafts: Any) -> int:
    return sum(bool(j.parse_boolean(get_text(draft, "owed"))) for draft in j.elements(drafts))


def start_runs(tx: Transaction, runs: Any) -> list[Row]:
    answer = []
    for item in sorted(j.elements(runs), key=lambda item: get_text(item, "run_id") or "\U0010ffff"):
        run_id, request = get_text(item, "run_id"), get_text(item, "request_hash")
        targets: list[str] = []
        known = tx.tables.runs.get(run_id)
        if known is None:
            targets = _start(tx, item)
            outcome = "started"
        else:
            outcome = "duplicate" if known["request_hash"] == request else "conflict"
        answer.append({"run_id": run_id, "outcome": outcome, "targets": targets})
    return answer


def _start(tx: Transaction, item: Any) -> list[str]:
    run_id, target = get_text(item, "run_id"), get_text(item, "target")
    tx.insert(tx.tables.runs, run_id, {
        "run_id": run_id, "target": target, "status": "running", "outcome": None,
        "request_hash": get_text(item, "request_hash"), "state": {}, "memory": {}, "version": 0, "signal_seq": 0,
        "open_turns": 0, "activations": 0, "owed": 0, "created_at": tx.now, "updated_at": tx.now, "ended_at": None,
    })  # fmt: skip
    assert run_id is not None
    for name in sorted(j.texts(get(item, "agents")), key=lambda name: name or "\U0010ffff"):
        agent_id = None if name is None else f"{run_id}/{name}"
        tx.insert(tx.tables.heads, agent_id, {
            "agent_id": agent_id, "run_id": run_id, "agent_name": name, "target": target, "status": "idle",
            "phase": None, "active_agent_turn_id": None, "turn_epoch": 0, "owner": None, "lease_until": None,
            "priority": 1, "ready_at": None, "trace_id": None, "parent_step_id": None, "moved_at": tx.now,
        })  # fmt: skip
    return react_to(tx, run_id, None, 0, get(item, "signals"), get(item, "reaction"))


def enqueue(tx: Transaction, messages: Any) -> list[Row]:
    answer = []
    for message in j.elements(messages):
        outcome, targets = _enqueue_one(tx, message)
        answer.append({"turn_id": get_text(message, "turn_id"), "outcome": outcome, "targets": targets})
    return answer


def _enqueue_one(tx: Transaction, message: Any) -> tuple[str | None, list[str]]:
    """Bug: enqueue_no_dedup."""
    run_id, agent, turn_id = (get_text(message, key) for key in ("run_id", "agent", "turn_id"))
    head = tx.tables.heads.get(f"{run_id}/{agent}")
    if head is None or run_id is None or head["run_id"] != run_id:
        return "unknown_agent", []
    if turn_id in tx.tables.turns and "enqueue_no_dedup" not in tx.bugs:
        return _same_message(tx, message), []
    if tx.tables.runs[run_id]["status"] != "running":
        return "ended", []
    cause, payload = get_text(message, "cause"), get(message, "payload")
    said = {"name": get_text(message, "name"), "parent": signal_id(run_id, 1) if cause is None else cause,
            "payload": {} if payload is ABSENT else payload}  # fmt: skip
    woken = {"name": "agent:activated", "parent": 0, "agent": agent, "payload": {"agent": agent}}
    activation = {**message, "cause": 0, "activation": 1}
    return "queued", react_to(tx, run_id, None, 0, [said, woken], {"activations": [activation]})


def check_limits(item: Any) -> None:
    ttl = j.parse_float(get_text(item, "ttl_seconds"))
    if ttl is None or not _TTL_MIN <= ttl <= _TTL_MAX:
        raise Refusal("22023", "ttl_seconds must be above 0 and at most 366 days")
    attempts = j.parse_integer(get_text(item, "max_attempts"))
    if attempts is None or not 1 <= attempts <= 1000:
        raise Refusal("22023", "max_attempts must be between 1 and 1000")
    priority = j.parse_integer(get_text(item, "priority"))
    if priority is not None and not 0 <= priority <= 3:
        raise Refusal("22023", "priority must be between 0 (low) and 3 (critical)")


def _same_message(tx: Transaction, message: Any) -> str | None:
    turn = tx.tables.turns[get_text(message, "turn_id")]
    cause = tx.tables.signals.get((turn["run_id"], turn["cause_seq"]))
    if cause is None:
        return None
    payload = get(message, "payload")
    is_same = (
        turn["agent_id"] == f"{get_text(message, 'run_id')}/{get_text(message, 'agent')}"
        and cause["name"] == get_text(message, "name")
        and cause["payload"] == ({} if payload is ABSENT else payload)
    )
    return "duplicate" if is_same else "conflict"


def react(tx: Transaction, items: Any) -> list[Row]:
    """Bug: react_unguarded."""
    answer = []
    for item in j.elements(items):
        j.elements(get(get(item, "reaction"), "activations"))  # read before anything else, to lock their heads
    for item in j.elements(items):
        run_id = get_text(item, "run_id")
        run = tx.tables.runs.get(run_id)
        outcome, targets = "conflict", list[str]()
        version = j.get_whole(get(item, "reaction"), "version")
        if run is not None and run_id is not None and (run["version"] == version or "react_unguarded" in tx.bugs):
            for signal in tx.tables.log(run_id):
                if signal["owed"]:
                    tx.set(signal, owed=False)
            tx.update(tx.tables.runs, run, owed=0)
            targets = react_to(tx, run_id, None, 0, get(item, "signals"), get(item, "reaction"))
            outcome = "ok"
        answer.append({"run_id": run_id, "outcome": outcome, "targets": targets})
    return answer
