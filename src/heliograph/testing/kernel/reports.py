"""Check and keep reports in memory, like 61_report and 63_early_reports.sql; `resolve` applies them."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from heliograph.testing.kernel import jsonb as j
from heliograph.testing.kernel.head import add_bells
from heliograph.testing.kernel.ids import wrong_id
from heliograph.testing.kernel.jsonb import ABSENT, get, get_raw, get_text
from heliograph.testing.kernel.limits import limits, over_limit, rejection
from heliograph.testing.kernel.resolve import resolve
from heliograph.testing.kernel.tables import Row
from heliograph.testing.kernel.transaction import Transaction
from heliograph.testing.kernel.turn_queue import inbox_row

LOGIN = "heliograph"  # the session user of every call
_KEPT = 8  # duplicate reports per call that the inbox keeps


def report(tx: Transaction, items: Any) -> list[Row]:
    limited, listed = limits(tx), j.elements(items)
    verdicts = [_judge_report(tx, item, limited) for item in listed]
    results, seen = [], set[Any]()
    for item, verdict in zip(listed, verdicts, strict=True):
        if verdict["outcome"] == "applied":
            call = (get_text(item, "turn_id"), get_text(item, "call_id"))
            if call in seen:
                verdict["outcome"] = "duplicate"
                continue
            seen.add(call)
            keys = ("turn_id", "call_id", "status", "error", "actor", "may_still_run")
            fields = {key: get_raw(item, key) for key in keys}
            results.append(
                {**fields, "output": get_raw(item, "result"), "message_type": "tool_result", "session": LOGIN}
            )
    resumed, woken = resolve(tx, results, limited, logs=True)
    for item, verdict in zip(listed, verdicts, strict=True):
        _keep_other(tx, item, verdict, limited)
    answers = [_answer(item, verdict, resumed) for item, verdict in zip(listed, verdicts, strict=True)]
    return add_bells(tx, answers, woken)


def _answer(item: Any, verdict: Row, resumed: list[str]) -> Row:
    is_told = verdict["outcome"] in ("invalid", "rejected")
    return {
        "turn_id": get_raw(item, "turn_id"), "call_id": get_raw(item, "call_id"),
        "resumed": verdict["outcome"] == "applied" and get_text(item, "turn_id") in resumed, "outcome": verdict["outcome"],
        **({key: verdict[key] for key in ("code", "message")} if is_told else {}),
    }  # fmt: skip


def _judge_report(tx: Transaction, item: Any, limited: Row) -> Row:
    """Decide whether a report resolves a call, is kept as early, or has no effect.

    Bugs: epoch_gate (K5), early_dropped, no_token.
    """
    turn_id, call_id, status = (get_text(item, key) for key in ("turn_id", "call_id", "status"))
    turn = tx.tables.turns.get(turn_id)
    if turn is None:
        return {"outcome": "unknown_turn"}
    if turn["state"] == "done":
        return {"outcome": "turn_done"}
    wait, head = tx.tables.waits.get((turn_id, call_id)), tx.tables.heads[turn["agent_id"]]
    if wait is None:
        is_at_work = head["active_agent_turn_id"] == turn_id and head["status"] in ("running", "dispatched")
        if not is_at_work or wrong_id("a call id", call_id) is not None or "early_dropped" in tx.bugs:
            return {"outcome": "unknown_call"}
    elif wait["kind"] not in ("tool", "human") or (
        wait["token_hash"] not in (None, hash_of(get_text(item, "token"))) and "no_token" not in tx.bugs
    ):
        return {"outcome": "bad_token"}
    is_plain = status == "success" and get(item, "actor") is ABSENT
    result = get(item, "result")
    is_large = result is not ABSENT and j.octets(result) > limited["result_bytes_max"]
    if (not is_plain or is_large) and (rejected := _invalid_report(item, limited)) is not None:
        return rejected
    if wait is None:
        return {"outcome": "early"}
    if "epoch_gate" in tx.bugs and wait["epoch"] != _issued_at(tx, turn):
        return {"outcome": "duplicate"}
    if wait["state"] == "open" or "no_wait_cas" in tx.bugs:
        return {"outcome": "applied"}
    return {"outcome": "late" if wait["status"] == "timeout" else "duplicate"}


def _issued_at(tx: Transaction, turn: Row) -> int:
    """Return the epoch under which the turn was last claimed, for the mutant that checks it."""
    epochs = [
        le["turn_epoch"] for le in tx.tables.leases.of(turn["agent_id"]) if le["agent_turn_id"] == turn["agent_turn_id"]
    ]
    return int(max(epochs))


def _invalid_report(item: Any, limited: Row) -> Row | None:
    status, actor = get_text(item, "status"), get_text(item, "actor") or ""
    if status not in ("success", "failed") or (status == "failed" and get_text(item, "error") is None):
        return _invalid("the status of a report must be success, or failed with an error")
    if len(actor.encode()) > 200:
        return _invalid("actor must have at most 200 bytes")
    rejected = reject_result(item, limited)
    return None if rejected is None else {**rejected, "outcome": "invalid"}


def _invalid(message: str) -> Row:
    return {"outcome": "invalid", "code": "invalid_result", "message": message}


def hash_of(token: str | None) -> str | None:
    return None if token is None else sha256(token.encode()).hexdigest()


def reject_result(item: Any, limited: Row) -> Row | None:
    most = limited["result_bytes_max"]
    sizes = [j.octets(value) for key in ("result", "error") if (value := get(item, key)) is not ABSENT]
    if max(sizes, default=0) <= most:
        return None
    return over_limit("payload_too_large", f"the result of call {get_text(item, 'call_id') or ''} has {max(sizes)} bytes", most,
                      "store it elsewhere and report its location", "result_bytes_max")  # fmt: skip


def _keep_other(tx: Transaction, item: Any, verdict: Row, limited: Row) -> None:
    """Record a report that was not applied, and complete its `verdict`."""
    turn_id, call_id = get_text(item, "turn_id"), get_text(item, "call_id")
    if verdict["outcome"] == "early":
        verdict |= _keep_early(tx, item, limited)
    elif verdict["outcome"] in ("duplicate", "late"):
        wait = tx.tables.waits.get((turn_id, call_id))
        if wait is None:
            return
        if wait["duplicates"] < _KEPT:
            inbox_id, turn = tx.next("inbox_id"), tx.tables.turns[str(turn_id)]
            tx.insert(tx.tables.inbox, (turn_id, inbox_id), inbox_row(
                tx, turn, inbox_id, "tool_result", "duplicate", str(call_id), report_status=get_text(item, "status"),
                actor=get_text(item, "actor"), consumed_at=tx.now))  # fmt: skip
        tx.set(wait, duplicates=wait["duplicates"] + 1)


def _keep_early(tx: Transaction, item: Any, limited: Row) -> Row:
    turn_id, call_id = str(get_text(item, "turn_id")), str(get_text(item, "call_id"))
    payload = {**{key: get_raw(item, key) for key in ("status", "result", "error")}, "session": LOGIN,
               "token_hash": hash_of(get_text(item, "token"))}  # fmt: skip
    kept = [row for row in tx.tables.inbox.of(turn_id) if row["payload"] is not None]
    if any(row["correlation_id"] == call_id and row["payload"]["token_hash"] == payload["token_hash"] for row in kept):
        return {"outcome": "duplicate"}
    if len(kept) >= limited["waits_max"]:
        return rejection("too_many_early", f"{len(kept)} reports of calls that the turn has not opened are kept for it; "
                       f"report again once call {call_id} is open")  # fmt: skip
    inbox_id = tx.next("inbox_id")
    tx.insert(tx.tables.inbox, (turn_id, inbox_id), inbox_row(
        tx, tx.tables.turns[turn_id], inbox_id, "tool_result", "pending", call_id, payload=payload,
        actor=get_text(item, "actor")))  # fmt: skip
    return {"outcome": "early"}
