"""Begin inline calls in memory, like 42_begin_call.sql, under the same names."""

from __future__ import annotations

from typing import Any

from heliograph.testing.kernel import jsonb as j
from heliograph.testing.kernel.budgets import check_amounts, reserve, settle
from heliograph.testing.kernel.check_calls import wrong_call
from heliograph.testing.kernel.circuit_breakers import admit_inline, check_circuit, reject_if_open
from heliograph.testing.kernel.head import is_owner
from heliograph.testing.kernel.jsonb import SqlError, get, get_text
from heliograph.testing.kernel.limits import content_of, limits, reject_waits, rejection
from heliograph.testing.kernel.open_calls import insert_wait
from heliograph.testing.kernel.rate_limits import check_rates, has_rates, has_started, open_rates, take_inline
from heliograph.testing.kernel.resolve import resolve
from heliograph.testing.kernel.tables import Row, interval, result_of
from heliograph.testing.kernel.transaction import Transaction


def begin_call(tx: Transaction, items: Any) -> list[Row]:
    """Record the intent of inline calls before their effects. Bug: blind_retry (K14)."""
    listed = j.elements(items)
    check_intents(listed)
    open_rates(tx, listed)
    return begin(tx, listed, limits(tx))


def check_intents(listed: list[Any]) -> None:
    """Reject items that begin_call cannot take."""
    for item in listed:
        if (wrong := wrong_call(item)) is not None:
            raise SqlError("22023", wrong)
    for item in listed:
        check_circuit("p_items[].circuit_breaker", get(item, "circuit_breaker"))
        check_rates("p_items[].rates", get(item, "rates"))
    check_amounts(listed, "reserve")
    for item in listed:
        j.get_whole(item, "epoch")


def begin(tx: Transaction, listed: list[Any], limited: Row) -> list[Row]:
    """Begin the calls of begin_call, or those whose intents record_call has."""
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
            open_inline(tx, item)
            opened.add(len(answers) - 1)
        elif verdict["outcome"] == "done" and wait is not None:
            row |= _result_of(tx, wait)
        elif verdict["outcome"] == "fresh" and is_first and wait is not None and has_started(tx, wait, item):
            tx.set(wait, rate=_without_wait(wait["rate"]))
        elif verdict["outcome"] == "in_doubt" and is_first:
            message = "a worker was lost after it began the call and before it recorded the result"
            doubts.append(
                {**row, "status": "unknown", "error": {"code": "IN_DOUBT", "recoverable": False, "message": message}}
            )
    _doubt(tx, doubts, answers, limited)
    admit_inline(tx, listed, answers, opened)
    reserve(tx, listed, answers, opened)
    take_inline(tx, listed, answers, opened)
    _take_over(tx, listed, verdicts, answers)
    return answers


def _take_over(tx: Transaction, items: list[Any], verdicts: list[Row], answers: list[Row]) -> None:
    """Let this owner have the calls that it begins again, unless a limit has rejected them. Bug: rejected_taken_over."""
    seen = set[Any]()
    for item, verdict, answer in zip(items, verdicts, answers, strict=True):
        call = (answer["turn_id"], answer["call_id"])
        is_taken = answer["outcome"] == "again" or "rejected_taken_over" in tx.bugs
        if verdict["outcome"] == "again" and is_taken and call not in seen:
            seen.add(call)
            wait = tx.tables.waits[call]
            rate = wait["rate"] if has_rates(item) else _without_wait(wait["rate"])
            tx.set(wait, epoch=j.get_whole(item, "epoch"), rate=rate)


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
        return reject_if_open(tx, get(item, "circuit_breaker")) or {"outcome": "fresh"}
    if wait["state"] == "resolved":
        return {"outcome": "done"}
    if wait["kind"] != "inline":
        return rejection("not_inline", f"the turn waits for call {call_id} of kind {wait['kind']}: "
                         "give each call of a turn its own id")  # fmt: skip
    if wait["epoch"] == j.get_whole(item, "epoch"):
        return {"outcome": "fresh"}
    is_waiting = wait["rate"] is not None and "is_waiting" in wait["rate"]
    may_repeat = wait["effect"] != "once" or is_waiting or "blind_retry" in tx.bugs
    return {"outcome": "again" if may_repeat else "in_doubt"}


def _without_wait(rate: Row | None) -> Row | None:
    return rate and {key: value for key, value in rate.items() if key != "is_waiting"}


def open_inline(tx: Transaction, item: Any) -> None:
    head = tx.tables.heads[str(get_text(item, "agent_id"))]
    seconds = j.parse_float(get_text(item, "timeout_seconds"))
    insert_wait(
        tx, head, item, kind="inline", epoch=j.get_whole(item, "epoch"),
        deadline=None if seconds is None else tx.now + interval(seconds),
    )  # fmt: skip


def _result_of(tx: Transaction, wait: Row) -> Row:
    card = tx.tables.cards.get(result_of(wait["agent_turn_id"], wait["tool_call_id"]))
    return {"status": wait["status"], "content": None if card is None else content_of(tx, card["content"])}
