"""The earlier turns of an agent in memory, like 89_conversations.sql, under the same names."""

from __future__ import annotations

from typing import Any

from heliograph.testing.kernel.claim import waits_of
from heliograph.testing.kernel.head import signal_at
from heliograph.testing.kernel.jsonb import SqlError, get, get_text
from heliograph.testing.kernel.limits import content_of
from heliograph.testing.kernel.run_forks import log_parts
from heliograph.testing.kernel.tables import Row, end_of
from heliograph.testing.kernel.transaction import Transaction

_ENDS = ("agent:completed", "agent:failed")


def read_conversation(tx: Transaction, run_id: str, agent: str, before: int, limit: int) -> list[Row]:
    """The ended turns of an agent that were activated before a position, the newest first."""
    if not 1 <= limit <= 1000 or before < 0:
        raise SqlError("22023", "p_limit must be from 1 to 1000, and p_before_seq 0 or more")
    found = [
        (turn, upto)
        for part, start, upto in log_parts(tx.tables, run_id)
        for turn in tx.tables.turns.values()
        if turn["run_id"] == part and start < turn["activation_seq"] <= min(upto, before - 1)
        and turn["agent_id"] == f"{part}/{agent}" and turn["state"] == "done"
        and (part == run_id or _signals_of(tx, turn, upto, _ENDS))
    ]  # fmt: skip
    found.sort(key=lambda each: -int(each[0]["activation_seq"]))
    return [_earlier_turn(tx, turn, upto) for turn, upto in found[:limit]]


def _earlier_turn(tx: Transaction, turn: Row, upto: int) -> Row:
    card = tx.tables.cards.get(end_of(turn["agent_turn_id"]))
    has_output = turn["outcome"] in ("success", "partial")
    streamed = None if has_output else _signals_of(tx, turn, upto, ("harness:start", "text:delta"))
    return {
        "turn_id": turn["agent_turn_id"], "seq": turn["activation_seq"], "cause": signal_at(tx, turn["run_id"], turn["cause_seq"]),
        "outcome": turn["outcome"], "content": None if card is None else content_of(tx, card["content"]),
        "waits": waits_of(tx, turn["agent_turn_id"]), "streamed": streamed or None,
    }  # fmt: skip


def _signals_of(tx: Transaction, turn: Row, upto: int, names: tuple[str, ...]) -> list[Any]:
    """The signals of a turn with one of these names, in its own part of the log."""
    return [
        {"name": get(entry, "name"), "payload": get(entry, "payload")}
        for row in tx.tables.signals.of(turn["run_id"])
        if turn["activation_seq"] < row["seq"] <= upto and row["agent_turn_id"] == turn["agent_turn_id"]
        for entry in row["entries"] if get_text(entry, "name") in names
    ]  # fmt: skip
