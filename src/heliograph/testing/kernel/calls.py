"""Begin, record and defer calls in memory, like 42_begin_call, 42_record_call and 44_defer.sql, under the same names."""

from __future__ import annotations

from typing import Any

from heliograph.testing.kernel import jsonb as j
from heliograph.testing.kernel.append import append_drafts, reject_cards_and_signals
from heliograph.testing.kernel.budgets import check_amounts, reserve, settle, used_of
from heliograph.testing.kernel.endings import end_by_kernel, end_if_stopping, release_head
from heliograph.testing.kernel.head import bells, is_owner, owns
from heliograph.testing.kernel.ids import wrong_id
from heliograph.testing.kernel.jsonb import SqlError, get_raw, get_text
from heliograph.testing.kernel.limits import content_of, limits, reject_waits, rejection
from heliograph.testing.kernel.reports import reject_result
from heliograph.testing.kernel.resolve import resolve
from heliograph.testing.kernel.tables import REPORTED, Row, Transaction, interval, timestamp

_EFFECTS = ("pure", "idempotent", "transactional", "once")
_YEAR_SECONDS = 31_622_400


def begin_call(tx: Transaction, items: Any) -> list[Row]:
    """Bug: blind_retry (K14)."""
    limited, listed = limits(tx), j.elements(items)
    for item in listed:
        if (wrong := wrong_call(item)) is not None:
            raise SqlError("22023", wrong)
    check_amounts(listed, "reserve")
    for item in listed:
        j.get_whole(item, "epoch")
    answers, doubts, seen, opened = list[Row](), list[Row](), set[Any](), set[int]()
    counts: dict[str, int] = {}
    verdicts = [_judge_begin(tx, item, counts, limited) for item in listed]
    for item, verdict in zip(listed, verdicts, strict=True):
        call = (get_text(item, "turn_id"), get_text(item, "call_id"))
        wait, is_first = tx.tables.waits.get(call), call not in seen
        if verdict["outcome"] != "stale":
            seen.add(call)
        row = {"turn_id": call[0], "call_id": call[1], **verdict}
        answers.append(row)
        if verdict["outcome"] == "fresh" and wait is None and is_first:
            _open_inline(tx, item)
            opened.add(len(answers) - 1)
        elif verdict["outcome"] == "done" and wait is not None:
            row |= _result_of(tx, wait)
        elif verdict["outcome"] == "again" and is_first and wait is not None:
            tx.set(wait, epoch=j.get_whole(item, "epoch"))
        elif verdict["outcome"] == "in_doubt" and is_first:
            message = "a worker was lost after it began the call and before it recorded the result"
            doubts.append(
                {**row, "status": "unknown", "error": {"code": "IN_DOUBT", "recoverable": False, "message": message}}
            )
    _doubt(tx, doubts, answers, limited)
    reserve(tx, listed, answers, opened)
    return answers


def _doubt(tx: Transaction, doubts: list[Row], answers: list[Row], limited: Row) -> None:
    resolve(tx, doubts, limited, logs=True)
    for row in doubts:
        call = (row["turn_id"], row["call_id"])
        if tx.tables.waits[call]["reserved"] is not None:
            settle(tx, call, {})
    for row in answers:
        if row["outcome"] == "in_doubt":
            row.update(_result_of(tx, tx.tables.waits[row["turn_id"], row["call_id"]]))


def _judge_begin(tx: Transaction, item: Any, counts: dict[str, int], limited: Row) -> Row:
    if not is_owner(tx, item):
        return {"outcome": "stale"}
    agent_id, turn_id, call_id = (str(get_text(item, key)) for key in ("agent_id", "turn_id", "call_id"))
    place = counts[agent_id] = counts.get(agent_id, 0) + 1
    wait = tx.tables.waits.get((turn_id, call_id))
    if wait is None:
        known = len(tx.tables.waits.of(turn_id))
        if place + known > limited["waits_max"]:
            return reject_waits(place + known, limited)
        return {"outcome": "fresh"}
    if wait["state"] == "resolved":
        return {"outcome": "done"}
    if wait["kind"] != "inline":
        return rejection("not_inline", f"the turn waits for call {call_id} of kind {wait['kind']}: "
                         "give each call of a turn its own id")  # fmt: skip
    if wait["epoch"] == j.get_whole(item, "epoch"):
        return {"outcome": "fresh"}
    may_repeat = wait["effect"] != "once" or "blind_retry" in tx.bugs
    return {"outcome": "again" if may_repeat else "in_doubt"}


def _open_inline(tx: Transaction, item: Any) -> None:
    head = tx.tables.heads[str(get_text(item, "agent_id"))]
    seconds = j.parse_float(get_text(item, "timeout_seconds"))
    wait = insert_wait(
        tx, head, item, kind="inline", epoch=j.get_whole(item, "epoch"),
        deadline=None if seconds is None else tx.now + interval(seconds),
    )  # fmt: skip
    edge_id = tx.next("edge_id")
    tx.insert(tx.tables.edges, (wait["agent_turn_id"], edge_id), request_edge(tx, head, wait, edge_id))


def _open_not_made(tx: Transaction, item: Any) -> None:
    not_made = item["not_made"]
    _open_inline(
        tx,
        {
            **item,
            "step_id": get_raw(not_made, "step_id"),
            "tool": not_made["tool"],
            "effect": "pure",
            "timeout_seconds": None,
            "taint": get_raw(not_made, "taint"),
            "is_trusted": True,
        },
    )


def insert_wait(tx: Transaction, head: Row, call: Any, **more: Any) -> Row:
    """A call {call_id, step_id, tool, effect} of the head's turn, open."""
    turn_id, call_id = head["active_agent_turn_id"], get_text(call, "call_id")
    row = {
        "agent_turn_id": turn_id, "tool_call_id": call_id, "agent_id": head["agent_id"], "run_id": head["run_id"],
        "position": tx.next("wait_position"), "step_id": get_text(call, "step_id"), "tool": get_text(call, "tool"),
        "kind": None, "effect": get_text(call, "effect") or "once", "state": "open", "epoch": None, "deadline": None,
        "token_hash": None, "after_execution": "suspend", "may_override": False, "fails_fast": False, "child_turn_id": None, "status": None,
        "result_card_id": None, "resolved_position": None, "duplicates": 0, "opened_at": tx.now, "resolved_at": None,
        "reserved": None, "taint": _taint(call), "is_trusted": bool(j.parse_boolean(get_text(call, "is_trusted"))),
    }  # fmt: skip
    assert more.keys() <= row.keys()
    return tx.insert(tx.tables.waits, (turn_id, call_id), row | more)


def _taint(call: Any) -> list[str] | None:
    found = get_raw(call, "taint")
    return [str(source) for source in found] if isinstance(found, list) and found else None


def request_edge(tx: Transaction, head: Row, wait: Row, edge_id: int) -> Row:
    return {
        "edge_id": edge_id, "primitive": "join" if wait["kind"] == "child" else "tool_call", "edge_phase": "request",
        "run_id": head["run_id"], "agent_id": head["agent_id"], "agent_turn_id": wait["agent_turn_id"],
        "call_id": wait["tool_call_id"], "other_turn_id": wait["child_turn_id"], "cause_id": head["parent_step_id"],
        "created_at": tx.now,
    }  # fmt: skip


def _result_of(tx: Transaction, wait: Row) -> Row:
    card = tx.tables.cards.get(wait["result_card_id"])
    return {"status": wait["status"], "content": None if card is None else content_of(tx, card["content"])}


def wrong_call(call: Any) -> str | None:
    if wrong := wrong_id("a call id", get_text(call, "call_id")):
        return wrong
    if not 1 <= _bytes(call, "tool") <= 200:
        return "the tool of a call must have 1 to 200 bytes"
    if _bytes(call, "step_id") > 200:
        return "a step id must have at most 200 bytes"
    if get_text(call, "effect") not in (None, *_EFFECTS):
        return "an effect must be pure, idempotent, transactional or once"
    seconds = j.parse_float(get_text(call, "timeout_seconds"))
    if seconds is not None and not 0 <= seconds <= _YEAR_SECONDS:
        return "timeout_seconds must be between 0 and 366 days, or null"
    return None


def _bytes(value: Any, key: str) -> int:
    return len((get_text(value, key) or "").encode())


def record_call(tx: Transaction, items: Any) -> list[Row]:
    limited, listed = limits(tx), j.elements(items)
    check_amounts(listed, "used")
    for item in listed:
        if (wrong := _wrong_not_made(item)) is not None:
            raise SqlError("22023", wrong)
    for item in listed:
        status = get_text(item, "status")
        if status not in REPORTED or (status != "success" and get_text(item, "error") is None):
            raise SqlError("22023", "status must be success, or failed, timeout, unknown or canceled with an error")
    answers, results, seen = [], list[Row](), set[Any]()
    for item in listed:
        verdict = _judge_record(tx, item, limited)
        call = (get_text(item, "turn_id"), get_text(item, "call_id"))
        if verdict["outcome"] == "ok" and call in seen:
            verdict = {"outcome": "duplicate"}
        elif verdict["outcome"] == "ok":
            if call not in tx.tables.waits:
                _open_not_made(tx, item)
            elif (taint := _taint(item)) is not None:
                tx.set(tx.tables.waits[call], taint=taint)
            verdict["first_seq"] = append_drafts(tx, item, limited)
            results.append({**item, "output": get_raw(item, "result")})
        seen.add(call)
        answers.append({"turn_id": get_raw(item, "turn_id"), "call_id": get_raw(item, "call_id"), **verdict})
    resolve(tx, [_as_resolved(result) for result in results], limited, logs=False)
    for item in results:
        call = (get_text(item, "turn_id"), get_text(item, "call_id"))
        if tx.tables.waits[call]["reserved"] is not None or get_text(item, "used") is not None:
            settle(tx, call, used_of(item))
    return answers


def _wrong_not_made(item: Any) -> str | None:
    if (not_made := get_raw(item, "not_made")) is None:
        return None
    if not isinstance(not_made, dict):
        return "not_made must be an object with the step_id and the tool of the call"
    return wrong_call(
        {
            "call_id": get_raw(item, "call_id"),
            "tool": get_raw(not_made, "tool"),
            "step_id": get_raw(not_made, "step_id"),
        }
    )


def _as_resolved(item: Row) -> Row:
    return {key: item.get(key) for key in ("turn_id", "call_id", "status", "output", "error")}


def _judge_record(tx: Transaction, item: Any, limited: Row) -> Row:
    if not owns(tx, item):
        return {"outcome": "stale"}
    call_id = get_text(item, "call_id")
    wait = tx.tables.waits.get((get_text(item, "turn_id"), call_id))
    if wait is None:
        if get_raw(item, "not_made") is None:
            return rejection("not_begun", f"call {call_id or ''} was not begun: begin_call comes first")
        count = len(tx.tables.waits.of(get_text(item, "turn_id"))) + 1
        if count > limited["waits_max"]:
            return reject_waits(count, limited)
    elif wait["kind"] != "inline":
        return rejection(
            "not_inline", f"the turn waits for call {call_id} of kind {wait['kind']}: report its result instead"
        )
    elif wait["state"] != "open":
        return {"outcome": "duplicate"}
    return reject_result(item, limited) or reject_cards_and_signals(tx, item, limited) or {"outcome": "ok"}


# ---- defer ----


def defer(tx: Transaction, items: Any) -> list[Row]:
    most = limits(tx)["deferrals_max"]
    for item in j.elements(items):
        seconds = j.parse_float(get_text(item, "delay_seconds"))
        if seconds is None or not 0 <= seconds <= _YEAR_SECONDS:
            raise SqlError("22023", "delay_seconds must be between 0 and 366 days")
    for item in j.elements(items):
        if (j.parse_integer(get_text(item, "deferrals_max")) or 0) < 0:
            raise SqlError("22023", "deferrals_max must be 0 or more, or null")
    return [
        {"turn_id": get_raw(item, "turn_id"), "targets": [], **_defer(tx, item, most)} for item in j.elements(items)
    ]


def _defer(tx: Transaction, item: Any, deferrals_max: int) -> Row:
    """Bug: defer_uncapped."""
    if not owns(tx, item):
        return {"outcome": "stale"}
    agent_id, turn_id = str(get_text(item, "agent_id")), str(get_text(item, "turn_id"))
    if (woken := end_if_stopping(tx, agent_id)) is not None:
        return {"outcome": "stopped", **bells(tx, woken)}
    turn, own = tx.tables.turns[turn_id], j.parse_integer(get_text(item, "deferrals_max"))
    most, reason = deferrals_max if own is None else own, get_text(item, "reason")
    reason = None if reason is None else reason[:1000]
    if turn["defer_count"] >= most and "defer_uncapped" not in tx.bugs:
        limit = "the limit with helio db limits defers_max=NUMBER" if own is None else "the retries of the agent"
        message = (f"the turn would be deferred {turn['defer_count'] + 1} times; at most {most} are allowed: remove the cause, or "
                   f"raise {limit}. The last reason: {reason or ''}")  # fmt: skip
        is_untrusted = get_text(item, "trust") == "untrusted"
        woken = end_by_kernel(tx, turn_id, "failed", "RESOURCE_EXHAUSTED", message, is_untrusted=is_untrusted)
        return {"outcome": "exhausted", **bells(tx, woken)}
    due_at = tx.now + interval(j.parse_float(get_text(item, "delay_seconds")) or 0.0)
    tx.set(turn, defer_count=turn["defer_count"] + 1)
    for row in tx.tables.inbox.of(turn_id):
        if row["status"] == "processing":
            tx.set(
                row, status="deferred", retry_count=row["retry_count"] + 1, next_retry_at=due_at, defer_reason=reason
            )
    release_head(tx, agent_id, due_at)
    return {"outcome": "deferred", "due_at": timestamp(due_at)}
