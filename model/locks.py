"""The order of row locks: which orders can deadlock. A second, tiny model; the big one takes transactions as atomic.

Heads and runs are rows. A transaction asks for its rows one after the other (`select ... for update`), waits while
another holds the row, and gives all back at its commit. The only question is whether all of them can always finish.

The kernel's order: all heads first, ascending, then all runs, ascending (K17). A finish knows before its first lock
which turns it wakes, because the reaction is computed before the call. The natural order, own head, run, woken heads, is
the ablation: two turns of one run that wake each other's agents wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from model.checker import SYSTEM, Transition

Held = tuple[int, ...]  # per transaction: how many of its locks it holds; -1 when it has committed


@dataclass(frozen=True, slots=True)
class Transaction:
    """`own`: the heads that it locks first; `runs`; `wakes`: the heads of the turns that its reaction enqueues."""

    name: str
    own: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    wakes: tuple[str, ...] = ()


def heads_then_runs(tx: Transaction) -> tuple[str, ...]:
    """The kernel's order, K17."""
    return (*sorted({*tx.own, *tx.wakes}), *sorted(tx.runs))


def runs_then_heads(tx: Transaction) -> tuple[str, ...]:
    """As safe; but the run, the hottest row, is held for longer."""
    return (*sorted(tx.runs), *sorted({*tx.own, *tx.wakes}))


def as_needed(tx: Transaction) -> tuple[str, ...]:
    """The ablation: each row when it is needed."""
    return (*tx.own, *tx.runs, *(head for head in tx.wakes if head not in tx.own))


def mixed(tx: Transaction) -> tuple[str, ...]:
    """Another ablation: each order is safe alone, but one function takes the other one."""
    return runs_then_heads(tx) if tx.name.startswith("stop") else heads_then_runs(tx)


# Everything that takes more than one row, on two agents and two runs that share them; and a few that take one.
TRANSACTIONS = (
    Transaction("finish(t0)", own=("head a",), runs=("run 1",), wakes=("head b",)),
    Transaction("finish(t1)", own=("head b",), runs=("run 1",), wakes=("head a",)),
    Transaction("finish(t2) of another run", own=("head b",), runs=("run 2",), wakes=("head a",)),
    Transaction("react", runs=("run 1",), wakes=("head b", "head a")),
    Transaction("finish of a batch", own=("head b", "head a"), runs=("run 2", "run 1")),
    Transaction("stop(t0)", own=("head a",), runs=("run 1",)),
    Transaction("report(t1)", own=("head b",)),
)


class LockModel:
    """`checker.Model` of all TRANSACTIONS at the same time, under one order."""

    def __init__(self, order: Callable[[Transaction], tuple[str, ...]]) -> None:
        self.locks = tuple((tx.name, order(tx)) for tx in TRANSACTIONS)

    def initial(self) -> Held:
        return (0,) * len(self.locks)

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
