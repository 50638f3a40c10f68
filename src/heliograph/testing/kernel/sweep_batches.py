"""The common part of all sweeps: `_sweep_each`, `_try_sweep`, `_end_as_failed` and `_check_sweep` of 70_sweep_batches.sql."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from heliograph.testing.kernel.endings import end_by_kernel
from heliograph.testing.kernel.head import bells
from heliograph.testing.kernel.jsonb import SqlError
from heliograph.testing.kernel.tables import Row
from heliograph.testing.kernel.transaction import Transaction

FAILURES_MAX = 5  # then a turn is ended as failed


def sweep_each(
    tx: Transaction, turn_ids: Iterable[str], moves: Sequence[str], sweep: Callable[[Transaction, str, str], Row]
) -> Row:  # fmt: skip
    """Sweep each turn in its own savepoint. `sweep` returns {move: turn_id, woken} for one turn, or {}."""
    answer: Row = {**{move: [] for move in moves}, "failed": []}
    woken = set[str]()
    turns = [tx.tables.turns[turn_id] for turn_id in set(turn_ids)]
    for turn in sorted(turns, key=lambda t: (t["run_id"], t["agent_id"], t["queue_seq"])):
        agent_id, turn_id, savepoint = turn["agent_id"], turn["agent_turn_id"], tx.savepoint()
        try:
            outcome = sweep(tx, agent_id, turn_id)
        except SqlError as error:
            tx.rollback(savepoint)
            head = tx.tables.heads[agent_id]
            tx.set(head, sweep_failures=head["sweep_failures"] + 1)
            outcome = {"failed": {"turn_id": turn_id, "code": error.state, "message": error.message}}
            ended = None if head["sweep_failures"] < FAILURES_MAX else _end_as_failed(tx, turn, head, error.state)
            if ended is not None:
                outcome["failed"]["ended"] = True
                woken.update(ended)
        woken.update(outcome.pop("woken", ()))
        for move, value in outcome.items():
            answer[move].append(value)
    return {**answer, **bells(tx, woken)}


def _end_as_failed(tx: Transaction, turn: Row, head: Row, state: str) -> list[str] | None:
    """Ends the turn as failed. Returns the agents that it woke; None when not even this can be done."""
    if turn["state"] == "done":
        return None
    message = f"the kernel failed on this turn {head['sweep_failures']} times, the last time with {state}"
    savepoint = tx.savepoint()
    try:
        woken = end_by_kernel(tx, turn["agent_turn_id"], "failed", "INTERNAL_ERROR", message)
    except SqlError:
        tx.rollback(savepoint)
        return None
    tx.set(head, sweep_failures=0)
    return woken


def check_sweep(limit: int | None) -> None:
    if limit is not None and limit < 0:
        raise SqlError("22023", f"limit must be 0 or more, not {limit}")


def first(rows: Iterable[Row], key: Callable[[Row], Any], limit: int | None) -> list[Row]:
    """The first `limit` rows by `key`; None for all."""
    return sorted(rows, key=key)[:limit]
