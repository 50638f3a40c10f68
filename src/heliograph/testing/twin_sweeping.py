"""What all sweeps of the twin have in common: `_sweep_each`, `_try_sweep` and `_check_sweep` of 70_sweeps.sql."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from heliograph.testing.twin_json import Refusal
from heliograph.testing.twin_tables import Row, Transaction


def sweep_each(
    tx: Transaction, turn_ids: Iterable[str], moves: Sequence[str], sweep: Callable[[Transaction, str, str], Row]
) -> Row:  # fmt: skip
    """`sweep` answers what became of one turn: {move: turn_id, targets}, or {}."""
    answer: Row = {**{move: [] for move in moves}, "failed": []}
    targets = set[str]()
    turns = [tx.tables.turns[turn_id] for turn_id in set(turn_ids)]
    for turn in sorted(turns, key=lambda t: (t["run_id"], t["agent_id"], t["queue_seq"])):
        agent_id, turn_id, savepoint = turn["agent_id"], turn["agent_turn_id"], tx.savepoint()
        try:
            told = sweep(tx, agent_id, turn_id)
        except Refusal as refusal:
            tx.rollback(savepoint)
            head = tx.tables.heads[agent_id]
            tx.set(head, refusals=head["refusals"] + 1)
            told = {"failed": {"turn_id": turn_id, "code": refusal.state, "message": refusal.message}}
        targets.update(told.pop("targets", ()))
        for move, value in told.items():
            answer[move].append(value)
    return {**answer, "targets": sorted(targets)}


def check_sweep(limit: int | None) -> None:
    if limit is not None and limit < 0:
        raise Refusal("22023", f"limit must be 0 or more, not {limit}")


def first(rows: Iterable[Row], key: Callable[[Row], Any], limit: int | None) -> list[Row]:
    """The first `limit` rows by `key`; None for all."""
    return sorted(rows, key=key)[:limit]
