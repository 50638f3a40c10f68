"""The order of row locks: which orders can deadlock. A second, tiny model; the big one takes transactions as atomic.

Heads, runs and rows of the outbox are rows. A transaction locks its rows one after the other (`select ... for
update`), waits while another holds the row, and gives all back at its commit. The only question is whether all of them
can always finish.

The kernel's order: all heads first, ascending, then all runs, ascending, then rows of the outbox by key (K17, K37). A
finish receives the turns that it wakes before its first lock, because the reaction is computed before the call; a suspend receives
its children. The natural order, own head, run, woken heads, is the ablation: two turns of one run that wake each other's
agents wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from model.checker import SYSTEM, Transition

Held = tuple[int, ...]  # per transaction: how many of its locks it holds; -1 when it has committed


@dataclass(frozen=True, slots=True)
class Transaction:
    """`own`: the heads that it locks first; `runs`; `wakes`: the heads of the turns that it enqueues; `rows` of the
    outbox that exist already and that it changes, in the order in which it meets them."""

    name: str
    own: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    wakes: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()


def heads_then_runs(tx: Transaction) -> tuple[str, ...]:
    """The kernel's order, K17 and K37."""
    return (*sorted({*tx.own, *tx.wakes}), *sorted(tx.runs), *sorted(tx.rows))


def runs_then_heads(tx: Transaction) -> tuple[str, ...]:
    """Equally safe, but it locks the run, the hottest row, for longer."""
    return (*sorted(tx.runs), *sorted({*tx.own, *tx.wakes}), *sorted(tx.rows))


def as_needed(tx: Transaction) -> tuple[str, ...]:
    """The ablation: each row when it is needed."""
    return (*tx.own, *tx.runs, *(head for head in tx.wakes if head not in tx.own), *sorted(tx.rows))


def mixed(tx: Transaction) -> tuple[str, ...]:
    """Another ablation: each order is safe alone, but one function takes the other one."""
    return runs_then_heads(tx) if tx.name.startswith("stop") else heads_then_runs(tx)


def rows_as_met(tx: Transaction) -> tuple[str, ...]:
    """Against K37: rows of the outbox in the order of the items, or of the plan."""
    return (*sorted({*tx.own, *tx.wakes}), *sorted(tx.runs), *tx.rows)


def row_first(tx: Transaction) -> tuple[str, ...]:
    """Against K37: a sweep holds the row that it delivers, and locks the head that it concerns."""
    order = heads_then_runs(tx)
    return (*tx.rows, *order[: len(order) - len(tx.rows)]) if tx.name.startswith("sweep") else order


# Everything that takes more than one row, on two agents and two runs that share them; and a few that take one.
TURNS = (
    Transaction("finish(t0)", own=("head a",), runs=("run 1",), wakes=("head b",)),
    Transaction("suspend(t1) with a child", own=("head b",), runs=("run 1",), wakes=("head a",)),
    Transaction("finish(t2) of another run", own=("head b",), runs=("run 2",), wakes=("head a",)),
    Transaction("react", runs=("run 1",), wakes=("head b", "head a")),
    Transaction("finish of a batch", own=("head b", "head a"), runs=("run 2", "run 1")),
    Transaction("stop(t0)", own=("head a",), runs=("run 1",)),
    Transaction("report(t1)", own=("head b",), runs=("run 1",)),
)
# The outbox: commands that a report acknowledges and a relay counts, and the rows between parents and children.
ROWS = (
    Transaction("report of a batch", own=("head b", "head a"), runs=("run 1",), rows=("cmd 2", "cmd 1")),
    Transaction("mark_published", rows=("cmd 1", "cmd 2")),
    Transaction("finish(t0), its child is to stop", own=("head a",), runs=("run 1",), rows=("stop t1",)),
    Transaction("stop_runs(run 1)", runs=("run 1",), rows=("stop t1", "stop t0")),
    Transaction("sweep_stops(t1)", own=("head b",), runs=("run 1",), rows=("stop t1",)),
    Transaction("sweep_stops(t0)", own=("head a",), runs=("run 1",), rows=("stop t0",)),
    Transaction("sweep_reports(t1 to t0)", own=("head a",), runs=("run 1",), rows=("report t1",)),
)
# A claim skips heads that others have locked, so it waits only for the limits of its project (running_max).
CLAIMS = (
    Transaction("claim", rows=("limits",)),
    Transaction("finish(t0) and claim", own=("head a",), runs=("run 1",), wakes=("head b",), rows=("limits",)),
    Transaction("finish(t2) and claim", own=("head b",), runs=("run 1",), wakes=("head a",), rows=("limits",)),
    Transaction("stop(t0)", own=("head a",), runs=("run 1",)),
)


class LockModel:
    """`checker.Model` of some transactions at the same time, under one order."""

    def __init__(self, order: Callable[[Transaction], tuple[str, ...]], transactions: tuple[Transaction, ...]) -> None:
        self.locks = tuple((tx.name, order(tx)) for tx in transactions)

    def initial(self) -> Held:
        return (0,) * len(self.locks)

    def key(self, held: Held) -> Held:
        return held

    def successors(self, held: Held) -> Iterator[Transition[Held]]:
        taken = {row for (_, rows), n in zip(self.locks, held, strict=True) for row in rows[: max(n, 0)]}
        for i, (name, rows) in enumerate(self.locks):
            n = held[i]
            if n == len(rows):
                yield f"{name}: commits", SYSTEM, (*held[:i], -1, *held[i + 1 :]), ()
            elif n >= 0 and rows[n] not in taken:
                yield f"{name}: locks {rows[n]}", SYSTEM, (*held[:i], n + 1, *held[i + 1 :]), ()

    def broken(self, held: Held) -> tuple[str, ...]:
        is_over = self.is_quiet(held)
        return () if is_over or next(self.successors(held), None) else ("deadlock",)

    def is_quiet(self, held: Held) -> bool:
        return all(n == -1 for n in held)

    is_abandoned = is_settled = is_quiet
