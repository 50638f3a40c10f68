"""Record inline calls in memory, like 42_record_call.sql, under the same names."""

from __future__ import annotations

from typing import Any

from heliograph.testing.kernel import jsonb as j
from heliograph.testing.kernel.append import append_drafts, reject_cards_and_signals
from heliograph.testing.kernel.begin_call import begin, check_intents, open_inline
from heliograph.testing.kernel.budgets import check_amounts, settle, used_of
from heliograph.testing.kernel.check_calls import wrong_open_as
from heliograph.testing.kernel.head import owns, rounds, run_of
from heliograph.testing.kernel.jsonb import SqlError, get_raw, get_text
from heliograph.testing.kernel.limits import limits, reject_waits, rejection
from heliograph.testing.kernel.open_calls import taint_of
from heliograph.testing.kernel.rate_limits import check_rate_tokens, correct_tokens, open_rates
from heliograph.testing.kernel.reports import reject_result
from heliograph.testing.kernel.resolve import resolve
from heliograph.testing.kernel.tables import REPORTED, Row
from heliograph.testing.kernel.transaction import Transaction


def record_call(tx: Transaction, items: Any) -> list[Row]:
    limited, listed = limits(tx), j.elements(items)
    check_amounts(listed, "used")
    for item in listed:
        if (wrong := wrong_open_as(item)) is not None:
            raise SqlError("22023", wrong)
    for item in listed:
        status = get_text(item, "status")
        if status not in REPORTED or (status != "success" and get_text(item, "error") is None):
            raise SqlError("22023", "status must be success, or failed, timeout, unknown or canceled with an error")
    intents = {n: _intents_of(item) for n, item in enumerate(listed)}
    check_intents([each for own in intents.values() for each in own])
    check_rate_tokens(listed)
    open_rates(tx, [each for own in intents.values() for each in own])
    answers: dict[int, Row] = {}
    for places in rounds(run_of(get_text(item, "agent_id")) for item in listed):
        answers.update(zip(places, _record(tx, [listed[place] for place in places], limited), strict=True))
    _begin_next(tx, intents, answers, limited)
    return [
        {"turn_id": get_raw(item, "turn_id"), "call_id": get_raw(item, "call_id"), **answers[n]}
        for n, item in enumerate(listed)
    ]


def _intents_of(item: Any) -> list[Row]:
    """The intents of an item, as items of begin_call."""
    intents = get_raw(item, "intents") or []
    if not all(isinstance(each, dict) for each in intents):
        raise SqlError("22023", "p_items[].intents must be a list of objects")
    owner = {key: get_raw(item, key) for key in ("agent_id", "turn_id", "epoch")}
    return [{**each, **owner} for each in intents]


def _begin_next(tx: Transaction, intents: dict[int, list[Row]], answers: dict[int, Row], limited: Row) -> None:
    """Begin the calls whose intents record_call has, apart from those of items that are stale or rejected."""
    placed = [(n, each) for n, own in intents.items() if answers[n]["outcome"] in ("ok", "duplicate") for each in own]
    for (n, _), begun in zip(placed, begin(tx, [each for _, each in placed], limited), strict=True):
        answers[n].setdefault("begun", []).append(begun)


def _record(tx: Transaction, items: list[Any], limited: Row) -> list[Row]:
    """Record the results of a round: of runs that differ."""
    answers, results = list[Row](), list[Row]()
    for item in items:
        verdict = _judge_record(tx, item, limited)
        if verdict["outcome"] == "ok":
            call = (get_text(item, "turn_id"), get_text(item, "call_id"))
            correct_tokens(tx, item)
            if call not in tx.tables.waits:
                _open_recorded(tx, item)
            elif (taint := taint_of(item)) is not None:
                tx.set(tx.tables.waits[call], taint=taint)
            verdict["first_seq"] = None if _loses_signals(tx, item) else append_drafts(tx, item)
            results.append({**item, "output": get_raw(item, "result"), "seq": _last_seq(item, verdict["first_seq"])})
        answers.append(verdict)
    for item in results:  # one by one: the breakers count them in their order
        resolve(tx, [_as_resolved(item)], limited, logs=False)
        call = (get_text(item, "turn_id"), get_text(item, "call_id"))
        wait = tx.tables.waits.get(call)
        if wait is not None and (wait["reserved"] is not None or get_text(item, "used") is not None):
            settle(tx, call, used_of(item))
    return answers


def _loses_signals(tx: Transaction, item: Any) -> bool:
    return "phase_signals_lost" in tx.bugs and get_raw(item, "open_as") is not None


def _open_recorded(tx: Transaction, item: Any) -> None:
    """Bug: phase_end_lost."""
    if "phase_end_lost" in tx.bugs:
        return
    open_as = item["open_as"]
    open_inline(
        tx,
        {
            **item,
            "step_id": get_raw(open_as, "step_id"),
            "tool": open_as["tool"],
            "effect": "pure",
            "timeout_seconds": None,
            "taint": get_raw(open_as, "taint"),
            "is_trusted": True,
        },
    )


def _last_seq(item: Any, first: int | None) -> int | None:
    """The last signal that was logged with the result."""
    return None if first is None else first + j.length(get_raw(item, "signals")) - 1


def _as_resolved(item: Row) -> Row:
    return {key: item.get(key) for key in ("turn_id", "call_id", "status", "output", "error", "seq")}


def _judge_record(tx: Transaction, item: Any, limited: Row) -> Row:
    if not owns(tx, item):
        return {"outcome": "stale"}
    call_id = get_text(item, "call_id")
    wait = tx.tables.waits.get((get_text(item, "turn_id"), call_id))
    if wait is None:
        if get_raw(item, "open_as") is None:
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
