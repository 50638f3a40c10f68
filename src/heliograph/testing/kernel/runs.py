"""The functions of 30_runs, 31_start and 60_react.sql for the in-memory kernel, under the same names without the underscore."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from heliograph.ids import signal_id
from heliograph.testing.kernel import jsonb as j
from heliograph.testing.kernel.boxes import check_contexts
from heliograph.testing.kernel.budgets import open_budgets, wrong_amounts
from heliograph.testing.kernel.drafts import refuse_drafts
from heliograph.testing.kernel.head import (
    activate,
    add_bells,
    bells,
    insert_signals,
    rounds,
    run_of,
)
from heliograph.testing.kernel.ids import check, is_short, wrong_fields, wrong_id, wrong_url
from heliograph.testing.kernel.jsonb import ABSENT, Refusal, get, get_text
from heliograph.testing.kernel.limits import limits, refuse_activations, refuse_fan_out, refuse_signals, rejection
from heliograph.testing.kernel.outbox import stop_open_turns
from heliograph.testing.kernel.tables import Row, Transaction, interval

_TTL_MIN, _TTL_MAX = 1e-6, 31_622_400
_NO_HEAD = Refusal("23503", "a turn was asked for an agent that its run does not have")


def run_view(tx: Transaction, run: Row) -> Row:
    """Bug: ends_with_open_turns (the view shows one open turn at most)."""
    keys = ("run_id", "status", "version", "state", "memory", "open_turns", "pending_reactions", "activations")
    view = {key: run[key] for key in keys}
    if "ends_with_open_turns" in tx.bugs:
        view["open_turns"] = min(view["open_turns"], 1)
    return view


# ---- turns ----


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
        raise _NO_HEAD
    return sorted(awake)


def check_limits(item: Any) -> None:
    ttl = get(item, "ttl_seconds")
    if isinstance(ttl, bool) or not isinstance(ttl, int | float) or not _TTL_MIN <= ttl <= _TTL_MAX:
        raise Refusal("22023", "ttl_seconds must be above 0 and at most 366 days")
    attempts = j.parse_integer(get_text(item, "max_attempts"))
    if attempts is None or not 1 <= attempts <= 1000:
        raise Refusal("22023", "max_attempts must be between 1 and 1000")
    priority = j.parse_integer(get_text(item, "priority"))
    if priority is not None and not 0 <= priority <= 3:
        raise Refusal("22023", "priority must be between 0 (low) and 3 (critical)")
    check(wrong_id("a turn id", get_text(item, "turn_id")))
    instance, fields = get_text(item, "instance"), get(item, "result_fields")
    if instance is not None:
        check(wrong_id("an instance", instance))
    if fields is not ABSENT:
        check(wrong_fields(fields))
    check(wrong_amounts("a budget", get(item, "budget")))
    check(wrong_url(item))
    for key in ("context_box_id", "actor"):
        if len((get_text(item, key) or "").encode()) > 200:
            raise Refusal("22023", f"{key} has at most 200 bytes")
    if "/" in (instance or "") or get_text(item, "message_type") not in (None, "turn", "ui_action"):
        raise Refusal("22023", "instance has no slash, and message_type is turn or ui_action")


def _place(tx: Transaction, items: list[Row]) -> list[Row]:
    """Where each turn goes: its agent, its signals' positions, whether it is dispatched at once."""
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
    told = {key: get_text(item, key) for key in (
        "run_id", "turn_id", "message_type", "parent_turn_id", "parent_call_id", "context_box_id", "actor")}  # fmt: skip
    turn_id, run_id, message_type = told["turn_id"], told["run_id"], told["message_type"] or "turn"
    ttl, attempts = j.parse_float(get_text(item, "ttl_seconds")), j.parse_integer(get_text(item, "max_attempts"))
    assert ttl is not None
    fields = get(item, "result_fields")
    turn = tx.insert(tx.tables.turns, turn_id, {
        "agent_turn_id": turn_id, "agent_id": agent_id, "run_id": run_id, "queue_seq": tx.next("queue_seq"),
        "state": "queued", "message_type": message_type, "outcome": None, "priority": placed["priority"], "attempts": 0,
        "max_attempts": attempts, "defer_count": 0, "card_count": 0, "depth": placed["depth"],
        "parent_turn_id": told["parent_turn_id"], "parent_call_id": told["parent_call_id"],
        "cause_seq": placed["cause_seq"], "activation_seq": placed["activation_seq"],
        "context_box_id": told["context_box_id"], "output_box_id": None if turn_id is None else f"box_{turn_id}",
        "result_fields": None if fields is ABSENT else fields, "actor": told["actor"], "deliverable_card_id": None,
        "created_at": tx.now, "expires_at": tx.now + interval(ttl), "finished_at": None, "human_wait_since": None, "human_wait_time": 0,
        "budgets": None if (owners := get(item, "budgets")) is ABSENT else owners, "callback_url": get_text(item, "callback_url"),
    })  # fmt: skip
    if is_next:
        activate(tx, turn)
    assert run_id is not None
    cause_id = signal_id(run_id, placed["cause_seq"])
    inbox_id, edge_id = tx.next("inbox_id"), tx.next("edge_id")
    tx.insert(tx.tables.inbox, (turn_id, inbox_id), inbox_row(
        tx, turn, inbox_id, message_type, "pending" if is_next else "queued", cause_id,
        turn_epoch=placed["epoch"] if is_next else None, payload_box_id=told["context_box_id"], actor=told["actor"],
    ))  # fmt: skip
    tx.insert(tx.tables.edges, (turn_id, edge_id), {
        "edge_id": edge_id, "primitive": "enqueue", "edge_phase": "request", "run_id": run_id, "agent_id": agent_id,
        "agent_turn_id": turn_id, "call_id": None, "other_turn_id": told["parent_turn_id"], "cause_id": cause_id,
        "created_at": tx.now,
    })  # fmt: skip


def inbox_row(
    tx: Transaction, turn: Row, inbox_id: int, message_type: str, status: str, correlation_id: str, **more: Any
) -> Row:  # fmt: skip
    row = {
        "inbox_id": inbox_id, "agent_turn_id": turn["agent_turn_id"], "agent_id": turn["agent_id"],
        "message_type": message_type, "status": status, "turn_epoch": None, "correlation_id": correlation_id,
        "applied": False, "report_status": None, "payload_box_id": None, "payload_card_id": None, "payload": None,
        "actor": None, "next_retry_at": tx.now, "retry_count": 0, "defer_reason": None, "created_at": tx.now,
        "consumed_at": None,
    }  # fmt: skip
    assert more.keys() <= row.keys()
    return row | more


def _dispatch(tx: Transaction, placed: Row) -> str:
    """The turn's head, which may be new, is dispatched at once."""
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
        priority=placed["priority"], ready_at=tx.now, trace_id=run_id,
        parent_step_id=signal_id(run_id, placed["activation_seq"]), expecting_correlation_id=expecting,
        moved_at=max(tx.now, head["moved_at"]),
    )  # fmt: skip
    return str(head["agent_id"])


def insert_head(tx: Transaction, run_id: str, name: str | None, agent_id: str | None, target: str | None) -> Row:
    """An idle one, unless it is there already."""
    row = {
        "agent_id": agent_id, "run_id": run_id, "agent_name": name, "target": target, "status": "idle", "phase": None,
        "active_agent_turn_id": None, "turn_epoch": 0, "owner": None, "lease_until": None, "priority": 1,
        "ready_at": None, "due_at": None, "waiting_tool_count": 0, "resume_deadline": None, "resumes_on": None,
        "expecting_correlation_id": None, "stop_requested_at": None, "force_at": None, "stop_reason": None,
        "sweep_failures": 0, "trace_id": None, "parent_step_id": None, "moved_at": tx.now,
    }  # fmt: skip
    tx.offer(tx.tables.heads, agent_id, row)
    return tx.tables.heads[agent_id]


# ---- reactions ----


def commit_reactions(tx: Transaction, items: Iterable[Any], closed: int) -> list[str]:
    """Of runs that do not repeat. Bugs: open_turns_miscounted, message_clears_taint."""
    reacting, activations = [], list[Row]()
    listed = j.records(list(items))
    for item in listed:
        run_id = get_text(item, "run_id")
        run = tx.tables.runs.get(run_of(get_text(item, "agent_id")) if run_id is None else run_id)
        if run is not None and run["status"] != "ended":
            reacting.append((run, item))
    for run, item in reacting:
        signals, reaction, base = get(item, "signals"), get(item, "reaction"), run["signal_seq"]
        written, woken = j.length(signals), get(reaction, "activations")
        if written:
            insert_signals(tx, run["run_id"], base + 1, get_text(item, "turn_id"), signals)
        count = j.length(woken)
        state, memory, status = get(reaction, "state"), get(reaction, "memory"), get_text(reaction, "status")
        if j.has(reaction, "is_message"):
            kept = run["memory"]
            if "message_clears_taint" in tx.bugs:
                kept = {key: value for key, value in kept.items() if key != "untrusted_keys"}
            memory = j.joined(kept, {"activations_before": run["activations"]})
        elif j.has(reaction, "keeps_taint") and isinstance(get(run["memory"], "untrusted_keys"), list):
            memory = j.joined(memory, {"untrusted_keys": get(run["memory"], "untrusted_keys")})
        tx.update(
            tx.tables.runs, run, signal_seq=base + written, version=run["version"] + 1,
            open_turns=run["open_turns"] - closed + count, activations=run["activations"] + count,
            state=run["state"] if state is ABSENT else state, memory=run["memory"] if memory is ABSENT else memory,
            status=run["status"] if status is None else status, outcome=get_text(reaction, "outcome"),
            ended_at=tx.now if status == "ended" else None, updated_at=tx.now,
        )  # fmt: skip
        if count:
            activations += [j.joined(a, {"run_id": run["run_id"], "base": base}) for a in j.elements(woken)]
    if len(reacting) < len(listed):
        raise Refusal("23514", "the run has ended, and ends only once")
    activations.sort(key=lambda a: str(get(a, "run_id")))
    awake = enqueue_turns(tx, activations) if activations else []
    for run, item in sorted(reacting, key=lambda each: str(each[0]["run_id"])):
        stop_open_turns(tx, run["run_id"], get(get(item, "reaction"), "stops"))
    return awake


def activated(items: Any) -> None:
    """`_activated`: read before anything else, to lock the heads. Raises 22023."""
    for item in j.elements(items):
        j.elements(get(get(item, "reaction"), "activations"))


def react(tx: Transaction, items: Any) -> list[Row]:
    """Bug: react_unguarded."""
    activated(items)
    limited, answer = limits(tx), []
    for item in j.elements(items):
        run_id = get_text(item, "run_id")
        run = tx.tables.runs.get(run_id)
        verdict, awake = {"outcome": "conflict"}, list[str]()
        version = j.get_whole(get(item, "reaction"), "version")
        if run is not None and run_id is not None and (run["version"] == version or "react_unguarded" in tx.bugs):
            woken = get(get(item, "reaction"), "activations")
            verdict = (
                refuse_signals(get(item, "signals"), limited)
                or refuse_activations(tx, run_id, [] if woken is ABSENT else woken, limited)
                or refuse_drafts(run, get(item, "signals"))
                or {"outcome": "ok"}
            )
            if verdict["outcome"] == "ok":
                verdict, awake = _pay(tx, run, item)
            if verdict["outcome"] == "rejected":
                tx.set(run, rejections=run["rejections"] + 1)
        answer.append({"run_id": run_id, **bells(tx, awake), **verdict})
    return answer


def _pay(tx: Transaction, run: Row, item: Any) -> tuple[Row, list[str]]:
    """In a savepoint: what is refused leaves nothing of itself."""
    savepoint = tx.savepoint()
    try:
        for row in tx.tables.signals.of(run["run_id"]):
            if row["is_pending"]:
                tx.set(row, is_pending=False)
        tx.update(tx.tables.runs, run, pending_reactions=0, rejections=0)
        return {"outcome": "ok"}, commit_reactions(tx, [item], 0)
    except Refusal as refusal:
        tx.rollback(savepoint)
        return rejection(refusal.state, refusal.message), []


# ---- start ----


def start_runs(tx: Transaction, runs: Any) -> list[Row]:
    limited, items = limits(tx), j.elements(runs)
    ids = [get_text(item, "run_id") for item in items]
    for item in items:
        _check_run(item)
    answers: list[Row] = [{"run_id": run_id} for run_id in ids]
    awake: list[str] = []
    for places in rounds(ids):
        begun = [n for n in sorted(places, key=lambda n: str(ids[n])) if _begin(tx, items[n], answers[n], limited)]
        awake += _log_and_activate(tx, [items[n] for n in begun])
    for item, row in zip(items, answers, strict=True):
        if row.get("outcome") is None:
            known = tx.tables.runs[row["run_id"]]["request_hash"]
            row["outcome"] = "duplicate" if known == get_text(item, "request_hash") else "conflict"
    return add_bells(tx, answers, awake)


def _check_run(item: Any) -> None:
    run_id = get_text(item, "run_id")
    check(wrong_url(item))
    check(wrong_id("a run id", run_id))
    if "/" in str(run_id) or len((get_text(item, "target") or "").encode()) > 200:
        raise Refusal("22023", "a run id has no slash, and target at most 200 bytes")
    if not all(is_short(name) and "/" not in str(name) for name in j.texts(get(item, "agents"))):
        raise Refusal("22023", "agents: a name has 1 to 200 bytes and no slash")


def _begin(tx: Transaction, item: Any, answer: Row, limited: Row) -> bool:
    """The run's row, where it is new; else why not, where that is known already."""
    run_id, reaction, request = answer["run_id"], get(item, "reaction"), get_text(item, "request_hash")
    woken = j.length(get(reaction, "activations"))
    written = j.length(get(item, "signals"))
    refusal = (
        refuse_signals(get(item, "signals"), limited)
        or refuse_fan_out(woken, limited)
        or refuse_drafts({"run_id": run_id, "signal_seq": 0}, get(item, "signals"))
    )
    if refusal is not None:
        answer |= refusal
        return False
    state, memory, status = get(reaction, "state"), get(reaction, "memory"), get_text(reaction, "status")
    is_new = tx.offer(tx.tables.runs, run_id, {
        "run_id": run_id, "target": get_text(item, "target"), "status": "running" if status is None else status,
        "outcome": get_text(reaction, "outcome"), "request_hash": request, "state": {} if state is ABSENT else state,
        "memory": {} if memory is ABSENT else memory, "version": 1, "signal_seq": written, "pruned_seq": 0,
        "open_turns": woken, "activations": woken, "pending_reactions": 0, "rejections": 0,
        "wakes_on_results": bool(j.parse_boolean(get_text(item, "wakes_on_results"))), "stop_reason": None,
        "created_at": tx.now, "updated_at": tx.now, "ended_at": tx.now if status == "ended" else None,
        "callback_url": get_text(item, "callback_url"),
    })  # fmt: skip
    if is_new:
        answer["outcome"] = "started"
    return is_new


def _log_and_activate(tx: Transaction, runs: list[Any]) -> list[str]:
    activations = []
    for item in runs:
        run_id, agents = str(get_text(item, "run_id")), get(item, "agents")
        if j.length(get(item, "signals")):
            insert_signals(tx, run_id, 1, None, get(item, "signals"))
        for woken in j.elements(get(get(item, "reaction"), "activations")):
            if not j.has(agents, get_text(woken, "agent")):
                raise _NO_HEAD
            own = {k: v for k, v in woken.items() if k != "budgets"} if isinstance(woken, dict) else woken
            activations.append(j.joined(own, {"run_id": run_id, "target": get(item, "target"), "base": 0}))
    awake = enqueue_turns(tx, activations) if activations else []
    for item in sorted(runs, key=lambda item: str(get_text(item, "run_id"))):
        stop_open_turns(tx, str(get_text(item, "run_id")), get(get(item, "reaction"), "stops"))
    for item in runs:
        run_id = str(get_text(item, "run_id"))
        for name in sorted(j.texts(get(item, "agents")), key=lambda name: (name is None, name)):
            insert_head(tx, run_id, name, None if name is None else f"{run_id}/{name}", get_text(item, "target"))
    return awake
