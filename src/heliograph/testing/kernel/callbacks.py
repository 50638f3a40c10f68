"""The twin of 81_callbacks.sql: functions of the same names, without the underscore; its sweep is in `sweeps`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import sha256
from typing import Any

from heliograph.testing.kernel import jsonb as j
from heliograph.testing.kernel.jsonb import ABSENT, Refusal, get, get_text
from heliograph.testing.kernel.limits import content_of
from heliograph.testing.kernel.tables import Row, Transaction, interval

_URL = re.compile(r"https?://[!-~]+")


def callback_id(tx: Transaction, what: str) -> str:
    return "callback_" + sha256(f"{tx.project}/{what}".encode()).digest()[:16].hex()


def wrong_url(item: Any) -> str | None:
    url = get(item, "callback_url")
    if url is ABSENT or url is None or (isinstance(url, str) and len(url) <= 2000 and _URL.fullmatch(url)):
        return None
    return "callback_url begins with https:// and has at most 2000 printable ASCII characters"


def create_turn_callbacks(tx: Transaction, turns: Iterable[Row]) -> None:
    for turn in turns:
        if turn["callback_url"] is not None:
            _call_back(tx, f"turn:{turn['agent_turn_id']}", turn, turn["agent_turn_id"])


def create_run_callbacks(tx: Transaction, runs: Iterable[Row]) -> None:
    for run in runs:
        if run["callback_url"] is not None and run["status"] == "ended":
            _call_back(tx, f"run:{run['run_id']}", run, None)


def _call_back(tx: Transaction, what: str, ended: Row, turn_id: str | None) -> None:
    identifier = callback_id(tx, what)
    tx.insert(tx.tables.callbacks, identifier, {
        "callback_id": identifier, "run_id": ended["run_id"], "turn_id": turn_id, "url": ended["callback_url"], "state": "due",
        "attempts": 0, "due_at": tx.now, "last_error": None, "created_at": tx.now, "finished_at": None,
    })  # fmt: skip


def is_called_back(tx: Transaction, what: str) -> bool:
    """Whether somebody is still to be told of this end."""
    row = tx.tables.callbacks.get(callback_id(tx, what))
    return row is not None and row["state"] == "due"


def take_callbacks(tx: Transaction, limit: int, hidden_seconds: float) -> list[Row]:
    if limit is None or not 1 <= limit <= 1000:
        raise Refusal("22023", f"limit must be between 1 and 1000, not {limit}")
    if hidden_seconds is None or not 0 <= hidden_seconds <= 86_400:
        raise Refusal("22023", f"hidden_seconds must be between 0 and 86400, not {hidden_seconds}")
    answer = []
    for row in due_callbacks(tx, limit, tx.now):
        tx.set(row, attempts=row["attempts"] + 1, due_at=tx.now + interval(hidden_seconds))
        answer.append(_callback_row(tx, row))
    return answer


def due_callbacks(tx: Transaction, limit: int | None, at: int) -> list[Row]:
    due = [row for row in tx.tables.callbacks.values() if row["state"] == "due" and row["due_at"] <= at]
    return sorted(due, key=lambda row: (row["due_at"], row["callback_id"]))[:limit]


def _callback_row(tx: Transaction, row: Row) -> Row:
    turn, run = tx.tables.turns.get(row["turn_id"]), tx.tables.runs.get(row["run_id"])
    ended: Row = (turn if row["turn_id"] is not None else run) or {}
    card = tx.tables.cards.get(ended.get("deliverable_card_id"))
    content = (
        ended.get("state") if row["turn_id"] is None else None if card is None else content_of(tx, card["content"])
    )
    return {
        "callback_id": row["callback_id"], "url": row["url"], "attempt": row["attempts"], "run_id": row["run_id"],
        "turn_id": row["turn_id"], "agent": None if turn is None else turn["agent_id"].split("/")[1],
        "call_id": ended.get("parent_call_id"), "outcome": ended.get("outcome"), "content": content,
        "card_id": ended.get("deliverable_card_id"),
        "duration_ms": max(0, (row["created_at"] - ended["created_at"]) // 1000) if ended else 0,
    }  # fmt: skip


def record_callbacks(tx: Transaction, items: Any) -> list[Row]:
    tries = [
        (item, j.parse_float(get_text(item, "again_seconds")), j.parse_integer(get_text(item, "attempt")))
        for item in j.elements(items)
    ]
    for item, again, _ in tries:
        if get_text(item, "state") not in ("delivered", "failed") or not (again is None or 0 <= again <= 31_622_400):
            raise Refusal("22023", "a try was delivered, or failed with again_seconds from 0 to 366 days, or null")
    answer, seen = [], set[str | None]()
    for item, again, attempt in tries:
        identifier, error = get_text(item, "callback_id"), get_text(item, "error")
        row = tx.tables.callbacks.get(identifier)
        is_own = row is not None and row["state"] == "due" and row["attempts"] == attempt
        is_first, has_failed = identifier not in seen, get_text(item, "state") == "failed"
        seen.add(identifier)
        if row is not None and is_own and is_first:
            is_over = not has_failed or again is None
            tx.set(row, state="delivered" if not has_failed else "dead" if again is None else "due",
                   due_at=None if is_over or again is None else tx.now + interval(again),
                   last_error=error[:500] if has_failed and error is not None else None,
                   finished_at=tx.now if is_over else row["finished_at"])  # fmt: skip
        answer.append({"callback_id": identifier, "outcome": "ok" if is_own and is_first else "stale"})
    return answer


def redeliver_callbacks(tx: Transaction, keys: Any) -> list[Row]:
    wanted = j.texts(keys)
    for identifier in set(wanted):
        if (row := tx.tables.callbacks.get(identifier)) is not None:
            tx.set(row, state="due", attempts=0, due_at=tx.now, last_error=None, finished_at=None)
    return [
        {"callback_id": key, "outcome": "due" if key in tx.tables.callbacks else "unknown_callback"} for key in wanted
    ]
