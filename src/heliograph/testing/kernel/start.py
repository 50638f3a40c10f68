"""Start runs in memory, like 31_start.sql, under the same names."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from typing import Any

from heliograph.testing.kernel import jsonb as j
from heliograph.testing.kernel.drafts import reject_drafts
from heliograph.testing.kernel.fork_calls import copy_calls
from heliograph.testing.kernel.head import (
    add_bells,
    insert_signals,
    rounds,
)
from heliograph.testing.kernel.ids import check, is_short, wrong_id, wrong_url
from heliograph.testing.kernel.jsonb import ABSENT, SqlError, get, get_text
from heliograph.testing.kernel.limits import limits, reject_depth, reject_fan_out, reject_signals
from heliograph.testing.kernel.outbox import stop_open_turns
from heliograph.testing.kernel.recordings import recording_columns, recording_of
from heliograph.testing.kernel.run_forks import fork_of
from heliograph.testing.kernel.tables import Row
from heliograph.testing.kernel.transaction import Transaction
from heliograph.testing.kernel.turn_queue import enqueue_turns, insert_head, no_agent


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
        for run in (tx.tables.runs[ids[n]] for n in begun):
            if run["forked_from"] is not None:
                copy_calls(tx, items[ids.index(run["run_id"])], run["forked_seq"])
    for item, row in zip(items, answers, strict=True):
        if row.get("outcome") is None:
            known = tx.tables.runs[row["run_id"]]["request_hash"]
            row["outcome"] = "duplicate" if known == _request_key(get_text(item, "request_hash")) else "conflict"
    return add_bells(tx, answers, awake)


def _request_key(given: str | None) -> str:
    return b64encode(sha256(str(given).encode()).digest()).decode()[:22]


def _check_run(item: Any) -> None:
    run_id = get_text(item, "run_id")
    check(wrong_url(item))
    check(wrong_id("a run id", run_id))
    if get_text(item, "target") is None or get_text(item, "request_hash") is None:
        raise SqlError("22023", f"run {run_id}: target and request_hash are required")
    if "/" in str(run_id) or len((get_text(item, "target") or "").encode()) > 200:
        raise SqlError("22023", f"run {run_id}: a run id must not contain a slash, and target at most 200 bytes")
    if not all(is_short(name) and "/" not in str(name) for name in j.texts(get(item, "agents"))):
        raise SqlError("22023", f"run {run_id}: agents: a name must have 1 to 200 bytes and no slash")


def _begin(tx: Transaction, item: Any, answer: Row, limited: Row) -> bool:
    """Insert the row of a new run, or write the reason not to into `answer`. Return whether the run is new."""
    run_id, reaction, request = answer["run_id"], get(item, "reaction"), get_text(item, "request_hash")
    fork = fork_of(tx, item)
    woken = j.length(get(reaction, "activations"))
    written = j.length(get(item, "signals"))
    rejected = (
        reject_signals(get(item, "signals"), limited)
        or reject_fan_out(woken, limited)
        or reject_depth(get(reaction, "activations"), limited)
        or reject_drafts({"run_id": run_id, "signal_seq": fork["seq"]}, get(item, "signals"))
        or fork["rejection"]
    )
    if rejected is not None:
        answer |= rejected
        return False
    state, memory, status = get(reaction, "state"), get(reaction, "memory"), get_text(reaction, "status")
    is_new = tx.offer(tx.tables.runs, run_id, {
        "run_id": run_id, "target": get_text(item, "target"), "status": "running" if status is None else status,
        "outcome": get_text(reaction, "outcome"), "request_hash": _request_key(request), "state": {} if state is ABSENT else state,
        "memory": {} if memory is ABSENT else memory, "version": 1, "signal_seq": fork["seq"] + written,
        "pruned_seq": 0, "open_turns": woken, "activations": fork["activations"] + woken, "pending_reactions": 0, "rejections": 0,
        "wakes_on_results": bool(j.parse_boolean(get_text(item, "wakes_on_results"))), "stop_reason": None,
        "created_at": tx.now, "updated_at": tx.now, "ended_at": tx.now if status == "ended" else None,
        "callback_url": get_text(item, "callback_url"), "forked_from": fork["owner"],
        "forked_seq": fork["seq"] if fork["owner"] is not None else None, **recording_columns(item),
    })  # fmt: skip
    if is_new:
        answer["outcome"] = "started"
    return is_new


def _log_and_activate(tx: Transaction, runs: list[Any]) -> list[str]:
    activations = []
    for item in runs:
        run_id, agents = str(get_text(item, "run_id")), get(item, "agents")
        base = tx.tables.runs[run_id]["forked_seq"] or 0
        if j.length(get(item, "signals")):
            insert_signals(tx, run_id, base + 1, None, get(item, "signals"), recording=recording_of(item))
        for woken in j.elements(get(get(item, "reaction"), "activations")):
            if not j.has(agents, get_text(woken, "agent")):
                raise no_agent(woken, run_id)
            own = {k: v for k, v in woken.items() if k != "budgets"} if isinstance(woken, dict) else woken
            activations.append(j.joined(own, {"run_id": run_id, "target": get(item, "target"), "base": base}))
    awake = enqueue_turns(tx, activations) if activations else []
    for item in sorted(runs, key=lambda item: str(get_text(item, "run_id"))):
        stop_open_turns(tx, str(get_text(item, "run_id")), get(get(item, "reaction"), "stops"))
    for item in runs:
        run_id = str(get_text(item, "run_id"))
        for name in sorted(j.texts(get(item, "agents")), key=lambda name: (name is None, name)):
            insert_head(tx, run_id, name, None if name is None else f"{run_id}/{name}", get_text(item, "target"))
    return awake
