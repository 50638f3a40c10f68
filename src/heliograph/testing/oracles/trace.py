"""The oracle of traces: the complete log of a run is a tree with one root, in the order of its causes."""

from __future__ import annotations

from collections.abc import Sequence

from heliograph.ids import split_signal_id
from heliograph.signals.model import Signal

ROOT_NAME = "workflow:start"
FORK_NAME = "workflow:forked"


def check_trace(signals: Sequence[Signal]) -> list[str]:
    """Return the inconsistencies of the complete log of a run; an empty list for a consistent log.

    In a consistent log `seq` counts from 1 without gaps, ids are unique, all signals belong to one run or, from a
    `workflow:forked` on, to a fork of it, a `workflow:start` is the only root, and every other signal has a parent that comes
    before it, or a signal of another run, from which it was sent.
    """
    problems: list[str] = []
    seen: set[str] = set()
    run_id = signals[0].run_id if signals else ""
    for position, signal in enumerate(signals, start=1):
        this = f"{signal.name} ({signal.id})"
        if signal.seq != position:
            problems.append(f"{this} has seq {signal.seq} at position {position}")
        if signal.id in seen:
            problems.append(f"{this} has the id of an earlier signal")
        if signal.name == FORK_NAME:
            run_id = signal.run_id
        if signal.run_id != run_id:
            problems.append(f"{this} belongs to run {signal.run_id}, the first signal to {run_id}")
        if signal.parent is not None and signal.parent not in seen and not _is_of_another_run(signal):
            problems.append(f"{this} has the parent {signal.parent}, which does not come before it")
        seen.add(signal.id)
    return problems + _check_roots(signals)


def _is_of_another_run(signal: Signal) -> bool:
    own, parent = split_signal_id(signal.id), split_signal_id(signal.parent or "")
    return own is not None and parent is not None and own[0] != parent[0]


def _check_roots(signals: Sequence[Signal]) -> list[str]:
    roots = [signal for signal in signals if signal.parent is None]
    if not roots:
        return [f"the log has no root; it must begin with {ROOT_NAME}"]
    problems = [f"{roots[0].name} ({roots[0].id}) is the root, not {ROOT_NAME}"] if roots[0].name != ROOT_NAME else []
    return problems + [f"{root.name} ({root.id}) has no parent; {roots[0].id} is the root" for root in roots[1:]]
