"""Queue turns for their agents, and dispatch those that can start, in memory: `_enqueue` of 30_activations.sql."""

from __future__ import annotations

from typing import Any

from heliograph.control.pool_names import DEFAULT_POOL
from heliograph.ids import signal_id
from heliograph.testing.kernel import jsonb as j
from heliograph.testing.kernel.boxes import check_contexts
from heliograph.testing.kernel.budgets import open_budgets, wrong_amounts
from heliograph.testing.kernel.head import (
    activate,
    due_at_of,
)
from heliograph.testing.kernel.ids import check, wrong_fields, wrong_id, wrong_url
from heliograph.testing.kernel.jsonb import ABSENT, SqlError, get, get_text
from heliograph.testing.kernel.run_forks import owner_at
from heliograph.testing.kernel.tables import Row, interval, microseconds_of
from heliograph.testing.kernel.transaction import Transaction

_TTL_MIN, _TTL_MAX = 1e-6, 31_622_400


def no_agent(activation: Any, run_id: Any) -> SqlError:
    """The error of a turn for an agent that its run does not have."""
    return SqlError(
        "23503", f"turn {get_text(activation, 'turn_id')} activates the agent {get_text(activation, 'agent')}, which run {run_id} does "
        "not have: name an agent of the run, or list this one in agents when the run starts"
    )  # fmt: skip


def enqueue_turns(tx: Transaction, activations: list[Row]) -> list[str]:
    """`_enqueue`: each activation has run_id and base, and target where its agent may be new."""
    for item in activations:
        check_limits(item)
    check_contexts(tx, activations)
    placed = _place(tx, j.records(open_budgets(tx, activations)))
    for item in placed:
        _insert_turn(tx, item)
    awake = [_dispatch(tx, item) for item in placed if item["is_next"]]
    if len(placed) < len(activations):
        known = {get_text(item, "turn_id") for item in placed}
        missing = min(activations, key=lambda item: get_text(item, "turn_id") in known)
        raise no_agent(missing, get_text(missing, "run_id"))
    return sorted(awake)


def check_limits(item: Any) -> None:
    check(wrong_id("a turn id", get_text(item, "turn_id")))
    try:
        _check_limits(item)
    except SqlError as error:
        raise SqlError(error.state, f"turn {get_text(item, 'turn_id')}: {error.message}") from None


def _check_limits(item: Any) -> None:
    ttl = get(item, "ttl_seconds")
    if isinstance(ttl, bool) or not isinstance(ttl, int | float) or not _TTL_MIN <= ttl <= _TTL_MAX:
        raise SqlError("22023", f"ttl_seconds must be above 0 and at most 31622400, which is 366 days, not {ttl}")
    attempts = j.parse_integer(get_text(item, "max_attempts"))
    if attempts is None or not 1 <= attempts <= 1000:
        raise SqlError("22023", f"max_attempts must be between 1 and 1000, not {attempts}")
    priority = j.parse_integer(get_text(item, "priority"))
    if priority is not None and not 0 <= priority <= 3:
        raise SqlError("22023", f"priority must be between 0 (low) and 3 (critical), not {priority}")
    instance, fields = get_text(item, "instance"), get(item, "result_fields")
    if instance is not None:
        check(wrong_id("an instance", instance))
    if (pool := get_text(item, "pool")) is not None:
        check(wrong_id("a pool", pool))
    if fields is not ABSENT:
        check(wrong_fields(fields))
    check(wrong_amounts("a budget", get(item, "budget")))
    check(wrong_url(item))
    for key in ("context_box_id", "actor"):
        if len((get_text(item, key) or "").encode()) > 200:
            raise SqlError("22023", f"{key} must have at most 200 bytes")
    if "/" in (instance or "") or get_text(item, "message_type") not in (None, "turn", "ui_action"):
        raise SqlError("22023", "instance must not contain a slash, and message_type must be turn or ui_action")


def _place(tx: Transaction, items: list[Row]) -> list[Row]:
    """Find each turn's agent, the positions of its signals, and whether it is dispatched at once."""
    placed, seen = [], set[str]()
    for item in items:
        agent_id = agent_of(item)
        head, cause, base = tx.tables.heads.get(agent_id), get(item, "cause"), j.get_whole(item, "base")
        if isinstance(cause, dict):
            cause_seq = j.get_whole(cause, "seq")
        else:
            index = j.whole(cause)
            cause_seq = None if index is None or base is None else base + 1 + index
        activation = j.get_whole(item, "activation")
        row = {
            "item": item, "agent_id": agent_id, "head": head, "cause_seq": cause_seq,
            "activation_seq": None if activation is None or base is None else base + 1 + activation,
            "depth": j.parse_integer(get_text(item, "depth"), bits=16) or 0,
            "priority": 1 if (priority := j.parse_integer(get_text(item, "priority"))) is None else priority,
            "pool": get_text(item, "pool") or DEFAULT_POOL,
        }  # fmt: skip
        if head is None and get_text(item, "target") is None:
            continue
        is_first = agent_id not in seen and not tx.tables.queued(agent_id)
        row["is_next"] = is_first and (head is None or head["status"] == "idle")
        row["epoch"] = (0 if head is None else head["turn_epoch"]) + 1
        seen.add(agent_id)
        placed.append(row)
    return placed


def agent_of(item: Any) -> str:
    """concat_ws('/', run_id, agent, instance)."""
    parts = (get_text(item, key) for key in ("run_id", "agent", "instance"))
    return "/".join(part for part in parts if part is not None)


def _insert_turn(tx: Transaction, placed: Row) -> None:
    item, agent_id, is_next = placed["item"], placed["agent_id"], placed["is_next"]
    given = {key: get_text(item, key) for key in (
        "run_id", "turn_id", "message_type", "parent_turn_id", "parent_call_id", "context_box_id", "actor")}  # fmt: skip
    turn_id, run_id, message_type = given["turn_id"], given["run_id"], given["message_type"] or "turn"
    ttl, attempts = j.parse_float(get_text(item, "ttl_seconds")), j.parse_integer(get_text(item, "max_attempts"))
    assert ttl is not None
    fields = get(item, "result_fields")
    turn = tx.insert(tx.tables.turns, turn_id, {
        "agent_turn_id": turn_id, "agent_id": agent_id, "run_id": run_id, "queue_seq": tx.next("queue_seq"),
        "state": "queued", "message_type": message_type, "outcome": None, "priority": placed["priority"], "pool": placed["pool"], "attempts": 0,
        "max_attempts": attempts, "defer_count": 0, "card_count": 0, "depth": placed["depth"],
        "parent_turn_id": given["parent_turn_id"], "parent_call_id": given["parent_call_id"],
        "cause_seq": placed["cause_seq"], "activation_seq": placed["activation_seq"],
        "context_box_id": given["context_box_id"], "output_box_id": None if turn_id is None else f"box_{turn_id}",
        "result_fields": None if fields is ABSENT else fields, "actor": given["actor"],
        "created_at": tx.now, "expires_at": tx.now + interval(ttl), "finished_at": None, "lacks_event": False, "human_wait_since": None, "human_wait_time": None,
        "budgets": None if (owners := get(item, "budgets")) is ABSENT else owners, "callback_url": get_text(item, "callback_url"),
        "starts_at": None if (starts_at := get_text(item, "starts_at")) is None else microseconds_of(starts_at),
    })  # fmt: skip
    if is_next:
        activate(tx, turn)
    assert run_id is not None
    owner = owner_at(tx.tables, run_id, placed["cause_seq"]) or run_id
    cause_id = None if owner == run_id else signal_id(owner, placed["cause_seq"])
    inbox_id = tx.next("inbox_id")
    tx.insert(tx.tables.inbox, (turn_id, inbox_id), inbox_row(
        tx, turn, inbox_id, message_type, "pending" if is_next else "queued", cause_id,
        turn_epoch=placed["epoch"] if is_next else None, payload_box_id=given["context_box_id"], actor=given["actor"],
    ))  # fmt: skip


def inbox_row(
    tx: Transaction, turn: Row, inbox_id: int, message_type: str, status: str, correlation_id: str | None, **more: Any
) -> Row:  # fmt: skip
    row = {
        "inbox_id": inbox_id, "agent_turn_id": turn["agent_turn_id"], "message_type": message_type,
        "status": status, "turn_epoch": None, "correlation_id": correlation_id,
        "applied": False, "report_status": None, "payload_box_id": None, "payload": None,
        "actor": None, "next_retry_at": tx.now, "retry_count": 0, "defer_reason": None, "created_at": tx.now,
        "consumed_at": None,
    }  # fmt: skip
    assert more.keys() <= row.keys()
    return row | more


def _dispatch(tx: Transaction, placed: Row) -> str:
    """Dispatch the turn at once; its head may be new."""
    item, head = placed["item"], placed["head"]
    turn_id, run_id = get_text(item, "turn_id"), get_text(item, "run_id")
    assert run_id is not None
    if head is None:
        head = insert_head(tx, run_id, get_text(item, "agent"), placed["agent_id"], get_text(item, "target"))
        expecting = None
    else:
        expecting = turn_id if get_text(item, "message_type") == "ui_action" else None
    tx.update(
        tx.tables.heads, head, status="dispatched", turn_epoch=placed["epoch"], active_agent_turn_id=turn_id,
        priority=placed["priority"], pool=placed["pool"], ready_at=tx.now, due_at=due_at_of(tx, tx.tables.turns[turn_id]),
        activation_seq=placed["activation_seq"], expecting_correlation_id=expecting,
        moved_at=max(tx.now, head["moved_at"]),
    )  # fmt: skip
    return str(head["agent_id"])


def insert_head(tx: Transaction, run_id: str, name: str | None, agent_id: str | None, target: str | None) -> Row:
    """Insert an idle head unless the agent has one."""
    row = {
        "agent_id": agent_id, "run_id": run_id, "agent_name": name, "target": target, "status": "idle", "phase": None,
        "active_agent_turn_id": None, "turn_epoch": 0, "owner": None, "lease_until": None, "priority": 1, "pool": DEFAULT_POOL,
        "ready_at": None, "due_at": None, "waiting_tool_count": 0, "resume_deadline": None, "resumes_on": None,
        "expecting_correlation_id": None, "stop_requested_at": None, "force_at": None, "stop_reason": None,
        "terminates": False, "sweep_failures": 0, "activation_seq": None, "moved_at": tx.now,
    }  # fmt: skip
    tx.offer(tx.tables.heads, agent_id, row)
    return tx.tables.heads[agent_id]
