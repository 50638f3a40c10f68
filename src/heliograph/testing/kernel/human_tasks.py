"""Measure the time that turns wait for humans, in memory, like 48_human_waits.sql, under the same names. Times in microseconds."""

from __future__ import annotations

from typing import Any

from heliograph.testing.kernel.jsonb import get
from heliograph.testing.kernel.limits import content_of
from heliograph.testing.kernel.tables import Row
from heliograph.testing.kernel.transaction import Transaction

_QUESTION_WIDTH = 200
_CALLS_NAMED = 3


def is_human_wait(waits: list[Row]) -> bool:
    """Whether these open calls wait for people and for nothing else."""
    return bool(waits) and all(wait["kind"] == "human" for wait in waits)


def begin_human_wait(tx: Transaction, turn: Row, waits: list[Row], at: int) -> None:
    """Set human_wait_since of a turn that waits only for people, as `_suspend_heads` does."""
    if is_human_wait(waits) and tx.tables.runs[turn["run_id"]]["status"] == "running":
        tx.set(turn, human_wait_since=at)


def waits_for_child(tx: Transaction, turn_id: str) -> bool:
    waits = tx.tables.waits.of(turn_id)
    return any(w["kind"] == "child" and (w["state"] == "open" or w["resolved_at"] == tx.now) for w in waits)


def human_wait_time(tx: Transaction, turn_id: str, since: int, *, with_open: bool) -> int:
    total = 0
    for wait in tx.tables.waits.of(turn_id):
        has_ended = wait["resolved_at"] is not None and wait["resolved_at"] >= since
        if wait["kind"] != "child" or not (has_ended or (with_open and wait["state"] == "open")):
            continue
        turn = tx.tables.turns.get(wait["child_turn_id"])
        if turn is None:
            continue
        head = tx.tables.heads[turn["agent_id"]]
        total += turn["human_wait_time"] or 0
        if turn["human_wait_since"] is not None and (
            turn["finished_at"] is not None or not waits_for_child(tx, turn["agent_turn_id"])
        ):
            until = tx.now if turn["finished_at"] is None else turn["finished_at"]
            total += max(0, until - turn["human_wait_since"])
        elif head["status"] == "suspended" and head["active_agent_turn_id"] == turn["agent_turn_id"]:
            total += human_wait_time(tx, turn["agent_turn_id"], head["moved_at"], with_open=True)
    return min(max(0, tx.now - since), total)


def credit_human_wait_time(tx: Transaction, turn: Row, since: int, *, resumes: bool, with_open: bool = False) -> None:
    """Add the time for which a turn has waited for humans to its lifetime. Bug: human_wait_counts."""
    has_mark = turn["human_wait_since"] is not None
    if has_mark and not waits_for_child(tx, turn["agent_turn_id"]):
        waited = max(0, tx.now - turn["human_wait_since"])
    else:
        waited = human_wait_time(tx, turn["agent_turn_id"], since, with_open=has_mark or with_open)
    if resumes:
        credit = 0 if "human_wait_counts" in tx.bugs else waited
        tx.set(
            turn,
            human_wait_since=None,
            human_wait_time=(turn["human_wait_time"] or 0) + credit or None,
            expires_at=turn["expires_at"] + credit,
        )
    elif tx.tables.runs[turn["run_id"]]["status"] != "running":
        tx.set(turn, human_wait_since=None)
    else:
        tx.set(turn, human_wait_since=tx.now - waited)


def end_human_wait(tx: Transaction, turn: Row) -> None:
    """End the time for which a turn waits for humans, and add it to the turn's lifetime."""
    if turn["human_wait_since"] is not None:
        credit_human_wait_time(tx, turn, tx.now, resumes=True)


def defer_expiry(tx: Transaction, turn: Row) -> bool:
    """Do not end a turn yet whose lifetime has passed while it waits for a child that waits for humans.

    Bug: parent_time_counts.
    """
    if "parent_time_counts" in tx.bugs:
        return False
    head, turn_id = tx.tables.heads[turn["agent_id"]], turn["agent_turn_id"]
    if head["status"] != "suspended" or head["active_agent_turn_id"] != turn_id:
        return False
    kinds = {wait["kind"] for wait in tx.tables.waits.of(turn_id) if wait["state"] == "open"}
    if "child" not in kinds or kinds & {"tool", "timer"}:
        return False
    waited = human_wait_time(tx, turn_id, head["moved_at"], with_open=True)
    if turn["expires_at"] + waited <= tx.now:
        return False
    tx.set(turn, human_wait_since=tx.now - waited)
    return True


def question(tx: Transaction, turn_id: str, call_id: str) -> str | None:
    cards = tx.tables.cards.of(tx.tables.turns[turn_id]["output_box_id"])
    for card in sorted((c for c in cards if c["kind"] == "tool.call"), key=lambda c: int(c["position"])):
        content = content_of(tx, card["content"])
        if get(content, "tool_call_id") == call_id:
            asked = get(get(content, "arguments"), "question")
            return asked[:_QUESTION_WIDTH] if isinstance(asked, str) else None
    return None


def expiry_message(tx: Transaction, turn: Row) -> str:
    message = f"not finished within its ttl_seconds, {rounded(turn['expires_at'] - (turn['human_wait_time'] or 0) - turn['created_at'])} s"
    if turn["human_wait_time"]:
        message += f", and {rounded(turn['human_wait_time'])} s of waiting for people"
    waits = [w for w in tx.tables.waits.of(turn["agent_turn_id"]) if w["state"] == "open" and w["kind"] != "inline"]
    named = [_named(tx, wait) for wait in sorted(waits, key=lambda w: int(w["position"]))[:_CALLS_NAMED]]
    return f"{message}; still open: {', '.join(named)}" if named else message


def _named(tx: Transaction, wait: Row) -> str:
    if wait["kind"] != "human":
        return f"call {wait['tool_call_id']} of {wait['tool']}"
    return f'call {wait["tool_call_id"]} asks a person "{asked_of(tx, wait)}"'


def asked_of(tx: Transaction, wait: Row) -> Any:
    asked = question(tx, wait["agent_turn_id"], wait["tool_call_id"])
    return wait["tool"] if asked is None else asked


def rounded(micros: int) -> str:
    """round(extract(epoch from interval), 3), as text."""
    thousandths = (micros + 500) // 1000
    return f"{thousandths // 1000}.{thousandths % 1000:03}"
