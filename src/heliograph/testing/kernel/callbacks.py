"""The rows that 81_callbacks.sql writes when a turn or a run ends. Only PostgreSQL sends callbacks."""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import sha256
from typing import Any

from heliograph.testing.kernel.jsonb import ABSENT, get
from heliograph.testing.kernel.tables import Row, Transaction

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
    """Whether the callback of this turn or run is still due."""
    row = tx.tables.callbacks.get(callback_id(tx, what))
    return row is not None and row["state"] == "due"
