"""Suspend turns in memory, like 49_suspend.sql, under the same names."""

from __future__ import annotations

from typing import Any

from heliograph.testing.kernel import jsonb as j
from heliograph.testing.kernel.append import reject_cards_and_signals
from heliograph.testing.kernel.budgets import reject_commands, spend_commands
from heliograph.testing.kernel.check_calls import check_suspend, reject_calls
from heliograph.testing.kernel.checkpoints import checkpoint
from heliograph.testing.kernel.children import enqueue_children, has_children, reject_children, reject_duplicates
from heliograph.testing.kernel.circuit_breakers import admit_calls, has_circuits
from heliograph.testing.kernel.claim import stop_order, waits_of
from heliograph.testing.kernel.endings import end_if_stopping
from heliograph.testing.kernel.head import add_bells, is_owner, rounds, run_of
from heliograph.testing.kernel.jsonb import get, get_text
from heliograph.testing.kernel.limits import limits
from heliograph.testing.kernel.open_calls import open_calls
from heliograph.testing.kernel.rate_limits import has_rates, open_rates, take_calls
from heliograph.testing.kernel.resolve import resolve
from heliograph.testing.kernel.suspend_heads import keep_running, suspend_heads
from heliograph.testing.kernel.tables import Row
from heliograph.testing.kernel.transaction import Transaction


def suspend(tx: Transaction, items: Any) -> list[Row]:
    limited, listed = limits(tx), j.elements(items)
    with_children = has_children(items)
    check_suspend(listed)
    open_rates(tx, listed)
    answers: list[Row] = [{"turn_id": get_text(item, "turn_id")} for item in listed]
    awake: list[str] = []
    for places in rounds(run_of(get_text(item, "agent_id")) for item in listed):
        for n in places:
            answers[n] |= _judge(tx, listed, n, limited, with_children=with_children)
        for n in places:
            if answers[n]["outcome"] == "stopped":
                awake += end_if_stopping(tx, str(get_text(listed[n], "agent_id"))) or []
        accepted = [n for n in places if answers[n]["outcome"] == "suspended"]
        _admit(tx, listed, accepted, answers)
        taken = [n for n in places if answers[n]["outcome"] == "suspended"]
        if taken:
            rows, woken = _suspend(tx, [listed[n] for n in taken], limited)
            awake += woken
            for n, row in zip(taken, rows, strict=True):
                answers[n] |= row
    return add_bells(tx, answers, awake)


def _judge(tx: Transaction, listed: list[Any], n: int, limited: Row, *, with_children: bool) -> Row:
    """Decide whether one turn of a round of suspend may suspend. Bug: stop_lost."""
    item = listed[n]
    j.get_whole(item, "epoch")
    if not is_owner(tx, item):
        return {"outcome": "stale"}
    head = tx.tables.heads[str(get_text(item, "agent_id"))]
    if head["stop_requested_at"] is not None and get(item, "terminates") is True:
        return {"outcome": "stopping", **stop_order(head)}
    if head["stop_requested_at"] is not None and "stop_lost" not in tx.bugs:
        return {"outcome": "stopped"}
    turn_id = str(get_text(item, "turn_id"))
    known = tx.tables.waits.of(turn_id)
    rejected = reject_cards_and_signals(tx, item, limited) or reject_calls(item, known, limited)
    if rejected is None and with_children:
        rejected = reject_children(tx, item, limited) or reject_duplicates(tx, listed, n)
    return rejected or reject_commands(tx, item) or {"outcome": "suspended"}


def _admit(tx: Transaction, listed: list[Any], places: list[int], answers: list[Row]) -> None:
    for n in places:
        admitted = admit_calls(tx, listed[n]) if has_circuits([listed[n]]) else listed[n]
        if "outcome" not in admitted and has_rates(admitted):
            admitted = take_calls(tx, admitted)
        if "outcome" in admitted:
            answers[n] |= admitted
        else:
            listed[n] = admitted


def _suspend(tx: Transaction, items: list[Any], limited: Row) -> tuple[list[Row], list[str]]:
    spend_commands(tx, items)
    firsts = open_calls(tx, items, limited)
    awake = enqueue_children(tx, items, firsts)
    _apply_early(tx, items, limited)
    for item in items:
        if (first := firsts.get(str(get_text(item, "turn_id")))) is not None:
            # read to find a checkpoint, also of an item that is repeated: it has to be a list
            j.length(get(item, "signals"))
            checkpoint(tx, str(run_of(get_text(item, "agent_id"))), first - 1)
    suspended = {str(get_text(item, "turn_id")) for item in items if suspend_heads(tx, item)}
    answers = []
    for item in items:
        turn_id = str(get_text(item, "turn_id"))
        row: Row = {"first_seq": firsts.get(turn_id)}
        if "circuits" in item:
            row["circuits"] = item["circuits"]
        if turn_id not in suspended:
            keep_running(tx, item, firsts.get(turn_id))
            row |= {"outcome": "resolved", "waits": waits_of(tx, turn_id)}
        answers.append(row)
    return answers, awake


def _apply_early(tx: Transaction, items: list[Any], limited: Row) -> None:
    """Apply the reports that arrived before their calls were open. Bug: early_forgotten."""
    results = []
    for item in items:
        turn_id = str(get_text(item, "turn_id"))
        done = set()
        for row in tx.tables.inbox.of(turn_id):
            if row["payload"] is None or row["correlation_id"] in done:
                continue
            wait = tx.tables.waits.get((turn_id, row["correlation_id"]))
            is_right = wait is not None and wait["state"] == "open" and wait["kind"] in ("tool", "human")
            if wait is not None and is_right and wait["token_hash"] in (None, row["payload"]["token_hash"]):
                done.add(row["correlation_id"])
                payload = row["payload"]
                results.append({"turn_id": turn_id, "call_id": row["correlation_id"], "inbox_id": row["inbox_id"],
                                "message_type": "tool_result", "status": payload["status"], "output": payload["result"],
                                "error": payload["error"], "session": payload["session"]})  # fmt: skip
    results.sort(key=lambda result: int(result["inbox_id"]))
    resolve(tx, [] if "early_forgotten" in tx.bugs else results, limited, logs=True)
    for item in items:
        turn_id = str(get_text(item, "turn_id"))
        for row in tx.tables.inbox.of(turn_id):
            if row["payload"] is not None and (turn_id, row["correlation_id"]) in tx.tables.waits:
                tx.set(row, status="dead", payload=None, consumed_at=tx.now)
