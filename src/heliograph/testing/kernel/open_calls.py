"""Open the calls of a turn in memory, like 48_open_calls.sql, under the same names."""

from __future__ import annotations

from typing import Any

from heliograph.testing.kernel import jsonb as j
from heliograph.testing.kernel.append import put_cards
from heliograph.testing.kernel.head import insert_signals, is_pending, run_of
from heliograph.testing.kernel.jsonb import ABSENT, SqlError, get, get_raw, get_text
from heliograph.testing.kernel.outbox import outbox_row
from heliograph.testing.kernel.recordings import recording_of
from heliograph.testing.kernel.reports import hash_of
from heliograph.testing.kernel.tables import Row, interval, microseconds_of
from heliograph.testing.kernel.transaction import Transaction


def open_calls(tx: Transaction, items: list[Any], limited: Row) -> dict[str, int]:
    """Returns {turn_id: log position of its first draft}."""
    firsts: dict[str, int] = {}
    known = set(tx.tables.waits)
    by_turn = sorted(items, key=lambda item: str(get_text(item, "turn_id")))
    for item in by_turn:
        turn_id = str(get_text(item, "turn_id"))
        for call in j.records(get(item, "calls")):
            j.parse_boolean(get_text(call, "may_override"))
            j.parse_boolean(get_text(call, "fails_fast"))
            if (turn_id, get_text(call, "call_id")) not in known:
                _open_call(tx, item, call)
    others = [put_cards(tx, item, j.elements(get(item, "cards")), limited) for item in by_turn]
    if any(others):
        raise SqlError("23505", "card_exists: another card has this id: choose another id")
    for item in items:
        _log_once(tx, item, firsts)
    return firsts


def _open_call(tx: Transaction, item: Any, call: Any) -> None:
    head = tx.tables.heads[str(get_text(item, "agent_id"))]
    turn_id, call_id, token = head["active_agent_turn_id"], get_text(call, "call_id"), get_text(call, "token")
    seconds = j.parse_float(get_text(call, "timeout_seconds"))
    child, command = get(call, "child"), get(call, "command")
    wait = insert_wait(
        tx, head, call, kind=get_text(call, "kind"), epoch=j.get_whole(item, "epoch"),
        deadline=None if seconds is None else tx.now + interval(seconds), token_hash=hash_of(token),
        after_execution=get_text(call, "after_execution") or "suspend", child_turn_id=get_text(child, "turn_id"),
        may_override=bool(j.parse_boolean(get_text(call, "may_override"))),
        fails_fast=bool(j.parse_boolean(get_text(call, "fails_fast"))), circuit=call.get("circuit"),
        rate=call.get("rate"),
    )  # fmt: skip
    if isinstance(command, dict):
        body = get(command, "body")
        body = {} if body is ABSENT or body is None else body
        tx.next("outbox_id")
        if not outbox_row(tx, f"cmd:{turn_id}:{call_id}", "cmd", turn_id, call_id=call_id, tool=wait["tool"],
                          pool=get_text(command, "pool"), priority=j.parse_integer(get_text(command, "priority")), starts_at=starts_at_of(call), subject=get_text(command, "subject"), body=body if token is None else {**body, "token": token}):  # fmt: skip
            raise SqlError("23505", f"the outbox has cmd:{turn_id}:{call_id} already")


def insert_wait(tx: Transaction, head: Row, call: Any, **more: Any) -> Row:
    """A call {call_id, step_id, tool, effect} of the head's turn, open."""
    turn_id, call_id = head["active_agent_turn_id"], get_text(call, "call_id")
    row = {
        "agent_turn_id": turn_id, "tool_call_id": call_id,
        "position": tx.next("wait_position"), "step_id": get_text(call, "step_id"), "tool": get_text(call, "tool"),
        "kind": None, "effect": get_text(call, "effect") or "once", "state": "open", "epoch": None, "deadline": None,
        "token_hash": None, "after_execution": "suspend", "may_override": False, "fails_fast": False, "child_turn_id": None, "status": None,
        "resolved_position": None, "duplicates": 0, "opened_at": tx.now, "resolved_at": None,
        "opened_seq": tx.tables.runs[head["run_id"]]["signal_seq"] + 1, "resolved_seq": None,
        "reserved": None, "circuit": None, "rate": None, "taint": taint_of(call), "is_trusted": bool(j.parse_boolean(get_text(call, "is_trusted"))),
    }  # fmt: skip
    assert more.keys() <= row.keys()
    return tx.insert(tx.tables.waits, (turn_id, call_id), row | more)


def starts_at_of(call: Any) -> int | None:
    """When a call that has taken tokens may start."""
    starts_at = get_text(get(call, "rate"), "starts_at")
    return None if starts_at is None else microseconds_of(starts_at)


def taint_of(call: Any) -> list[str] | None:
    found = get_raw(call, "taint")
    return [str(source) for source in found] if isinstance(found, list) and found else None


def _log_once(tx: Transaction, item: Any, firsts: dict[str, int]) -> None:
    turn_id, agent_id = str(get_text(item, "turn_id")), str(get_text(item, "agent_id"))
    run, drafts = tx.tables.runs[str(run_of(agent_id))], get(item, "signals")
    lease, emitted = (
        tx.tables.leases[agent_id, j.get_whole(item, "epoch")],
        j.parse_integer(get_text(item, "signals_emitted")),
    )
    if emitted is not None and lease["signals_emitted"] > emitted:
        if lease["last_append_seq"] is not None:
            firsts[turn_id] = lease["last_append_seq"]
        return
    count = 0 if drafts is None else j.length(drafts)
    if not count:
        return
    first = firsts[turn_id] = int(run["signal_seq"]) + 1
    has_pending = any(isinstance(draft, dict) and draft.get("is_pending") is True for draft in drafts)
    pending = sum(is_pending(draft) for draft in drafts) if has_pending else 0
    insert_signals(tx, run["run_id"], first, turn_id, drafts, is_pending=has_pending, recording=recording_of(item))
    tx.update(tx.tables.runs, run, signal_seq=run["signal_seq"] + count, updated_at=tx.now, pending_reactions=run["pending_reactions"] + pending,
              version=run["version"] + (1 if pending else 0))  # fmt: skip
