"""Suspend turns in memory, like 48_open_calls, 48_suspend_heads and 49_suspend.sql, under the same names."""

from __future__ import annotations

from typing import Any

from heliograph.testing.kernel import jsonb as j
from heliograph.testing.kernel.append import put_cards, reject_cards_and_signals
from heliograph.testing.kernel.budgets import reject_commands, spend_commands
from heliograph.testing.kernel.calls import insert_wait, request_edge, wrong_call
from heliograph.testing.kernel.children import (
    enqueue_children,
    has_children,
    reject_children,
    reject_duplicates,
    wrong_child,
)
from heliograph.testing.kernel.claim import waits_of
from heliograph.testing.kernel.endings import end_if_stopping
from heliograph.testing.kernel.head import add_bells, insert_signals, is_owner, is_pending, rounds, run_of
from heliograph.testing.kernel.human_tasks import begin_human_wait
from heliograph.testing.kernel.ids import check, check_phase, wrong_card
from heliograph.testing.kernel.jsonb import ABSENT, SqlError, get, get_text
from heliograph.testing.kernel.limits import limits, over_limit, reject_waits
from heliograph.testing.kernel.outbox import outbox_row
from heliograph.testing.kernel.reports import hash_of
from heliograph.testing.kernel.resolve import nearest, open_waits, resolve
from heliograph.testing.kernel.tables import Row, Transaction, interval


def suspend(tx: Transaction, items: Any) -> list[Row]:
    limited, listed = limits(tx), j.elements(items)
    with_children = has_children(items)
    _check_suspend(listed)
    answers: list[Row] = [{"turn_id": get_text(item, "turn_id")} for item in listed]
    awake: list[str] = []
    for places in rounds(run_of(get_text(item, "agent_id")) for item in listed):
        for n in places:
            answers[n] |= _judge(tx, listed, n, limited, with_children=with_children)
        for n in places:
            if answers[n]["outcome"] == "stopped":
                awake += end_if_stopping(tx, str(get_text(listed[n], "agent_id"))) or []
        taken = [n for n in places if answers[n]["outcome"] == "suspended"]
        if taken:
            rows, woken = _suspend(tx, [listed[n] for n in taken], limited)
            awake += woken
            for n, row in zip(taken, rows, strict=True):
                answers[n] |= row
    return add_bells(tx, answers, awake)


def _judge(tx: Transaction, listed: list[Any], n: int, limited: Row, *, with_children: bool) -> Row:
    """Bug: stop_lost."""
    item = listed[n]
    j.get_whole(item, "epoch")
    if not is_owner(tx, item):
        return {"outcome": "stale"}
    if tx.tables.heads[str(get_text(item, "agent_id"))]["stop_requested_at"] is not None and "stop_lost" not in tx.bugs:
        return {"outcome": "stopped"}
    turn_id = str(get_text(item, "turn_id"))
    known = tx.tables.waits.of(turn_id)
    rejected = reject_cards_and_signals(tx, item, limited) or _reject_calls(item, known, limited)
    if rejected is None and with_children:
        rejected = reject_children(tx, item, limited) or reject_duplicates(tx, listed, n)
    return rejected or reject_commands(tx, item) or {"outcome": "suspended"}


def _reject_calls(item: Any, known: list[Row], limited: Row) -> Row | None:
    calls = j.elements(get(item, "calls"))
    ids = {get_text(call, "call_id") for call in calls} | {w["tool_call_id"] for w in known}
    if len(ids) > limited["waits_max"]:
        return reject_waits(len(ids), limited)
    most = limited["result_bytes_max"]
    for call in calls:
        command = get(call, "command")
        if command is not ABSENT and j.octets(command) > most:
            return over_limit("payload_too_large", f"the command of call {get_text(call, 'call_id')} has {j.octets(command)} bytes",
                              most, "store large arguments elsewhere and pass their locations", "result_bytes_max")  # fmt: skip
    return None


def _suspend(tx: Transaction, items: list[Any], limited: Row) -> tuple[list[Row], list[str]]:
    spend_commands(tx, items)
    firsts = _open_calls(tx, items, limited)
    awake = enqueue_children(tx, items, firsts)
    _apply_early(tx, items, limited)
    suspended = {str(get_text(item, "turn_id")) for item in items if _suspend_heads(tx, item)}
    answers = []
    for item in items:
        turn_id = str(get_text(item, "turn_id"))
        row: Row = {"first_seq": firsts.get(turn_id)}
        if turn_id not in suspended:
            _keep_running(tx, item, firsts.get(turn_id))
            row |= {"outcome": "resolved", "waits": waits_of(tx, turn_id) or []}
        answers.append(row)
    return answers, awake


# ---- writes ----


def _open_calls(tx: Transaction, items: list[Any], limited: Row) -> dict[str, int]:
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
        fails_fast=bool(j.parse_boolean(get_text(call, "fails_fast"))),
    )  # fmt: skip
    edge_id = tx.next("edge_id")
    tx.insert(tx.tables.edges, (turn_id, edge_id), request_edge(tx, head, wait, edge_id))
    if isinstance(command, dict):
        body = get(command, "body")
        body = {} if body is ABSENT or body is None else body
        tx.next("outbox_id")
        if not outbox_row(tx, f"cmd:{turn_id}:{call_id}", "cmd", turn_id, call_id=call_id, tool=wait["tool"],
                          subject=get_text(command, "subject"), body=body if token is None else {**body, "token": token}):  # fmt: skip
            raise SqlError("23505", f"the outbox has cmd:{turn_id}:{call_id} already")


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
    insert_signals(tx, run["run_id"], first, turn_id, drafts, is_pending=has_pending)
    tx.update(tx.tables.runs, run, signal_seq=run["signal_seq"] + count, updated_at=tx.now, pending_reactions=run["pending_reactions"] + pending,
              version=run["version"] + (1 if pending else 0))  # fmt: skip


def _apply_early(tx: Transaction, items: list[Any], limited: Row) -> None:
    """Bug: early_forgotten."""
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


# ---- whether it suspends ----


def _suspend_heads(tx: Transaction, item: Any) -> bool:
    """Bug: no_recheck (K16)."""
    agent_id, turn_id = str(get_text(item, "agent_id")), str(get_text(item, "turn_id"))
    head, waits, phase = tx.tables.heads[agent_id], open_waits(tx, turn_id), get_text(item, "phase")
    resumes_on, seen = get_text(item, "join") or "all", j.parse_integer(get_text(item, "seen"))
    if "no_recheck" in tx.bugs:
        waits = [wait for wait in tx.tables.waits.of(turn_id) if wait["kind"] != "inline"]
    elif resumes_on == "each" and _has_news(tx, turn_id, seen):
        return False
    if not waits:
        return False
    lease = tx.tables.leases.get((agent_id, j.get_whole(item, "epoch")))
    if lease is not None:
        tx.set(lease, ended_at=max(tx.now, head["moved_at"]))
    begin_human_wait(tx, tx.tables.turns[turn_id], waits, max(tx.now, head["moved_at"]))
    for row in tx.tables.inbox.of(turn_id):
        if row["status"] == "processing" and row["payload"] is None:
            tx.set(row, status="consumed", consumed_at=tx.now)
    tx.update(
        tx.tables.heads, head, status="suspended", owner=None, lease_until=None, phase=head["phase"] if phase is None else phase,
        waiting_tool_count=len(waits), resume_deadline=nearest(waits), resumes_on=resumes_on, expecting_correlation_id=None,
        moved_at=max(tx.now, head["moved_at"]),
    )  # fmt: skip
    return True


def _has_news(tx: Transaction, turn_id: str, seen: int | None) -> bool:
    if seen is None:
        return any(row["applied"] and row["status"] == "pending" for row in tx.tables.inbox.of(turn_id))
    return any((w["resolved_position"] or 0) > seen for w in tx.tables.waits.of(turn_id))


def _keep_running(tx: Transaction, item: Any, first: int | None) -> None:
    agent_id, turn_id, epoch = (
        str(get_text(item, "agent_id")),
        str(get_text(item, "turn_id")),
        j.get_whole(item, "epoch"),
    )
    head, phase, drafts = tx.tables.heads[agent_id], get_text(item, "phase"), get(item, "signals")
    lease, emitted = tx.tables.leases[agent_id, epoch], j.parse_integer(get_text(item, "signals_emitted"))
    count = 0 if drafts is None else j.length(drafts)
    if count and not (emitted is not None and lease["signals_emitted"] > emitted):
        tx.set(lease, signals_emitted=lease["signals_emitted"] + count, last_append_seq=first)
    for row in tx.tables.inbox.of(turn_id):
        if row["applied"] and row["status"] == "pending":
            tx.set(row, status="processing", turn_epoch=epoch)
    if phase is not None and head["phase"] is not None and head["phase"] != phase:
        tx.update(tx.tables.heads, head, phase=phase)


# ---- rejections ----


def _check_suspend(items: list[Any]) -> None:
    """Raises 22023."""
    for item in items:
        calls = j.elements(get(item, "calls"))
        if get_text(item, "join") not in (None, "all", "each"):
            raise SqlError("22023", "join must be all or each")
        if len(calls) > 1 and len({get_text(c, "call_id") for c in calls} - {None}) < len(calls):
            raise SqlError("22023", "two calls of the item have the same id: give each its own")
        check_phase(item)
        for card in j.elements(get(item, "cards")):
            check(wrong_card(card))
        for call in calls:
            if (wrong := wrong_call(call) or _wrong_wait(call, item)) is not None:
                raise SqlError("22023", wrong)


def _wrong_wait(call: Any, item: Any) -> str | None:
    kind, command, token = get_text(call, "kind"), get(call, "command"), get_text(call, "token")
    if kind not in ("tool", "child", "timer", "human"):
        return "the kind of a call must be tool, child, timer or human"
    if (kind == "child") != isinstance(get(call, "child"), dict):
        return "a call of kind child must have a child, and no other call may have one"
    if kind == "timer" and get_text(call, "timeout_seconds") is None:
        return "a timer must have a timeout"
    if get_text(call, "after_execution") not in (None, "suspend", "terminate"):
        return "after_execution must be suspend or terminate"
    if token is not None and not 1 <= len(token.encode()) <= 1000:
        return "a token must have 1 to 1000 bytes"
    objects = (command, get(command, "body"))
    if (
        not all(value is None or value is ABSENT or isinstance(value, dict) for value in objects)
        or len((get_text(command, "subject") or "").encode()) > 200
    ):
        return "a command must be an object: subject has at most 200 bytes, or is missing, and body is an object"
    return wrong_child(get(call, "child"), j.length(get(item, "signals"))) if kind == "child" else None
