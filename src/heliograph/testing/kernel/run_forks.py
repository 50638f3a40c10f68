"""Forks of runs in memory: a run that continues the log of another one, like 31_forks.sql."""

from __future__ import annotations

from typing import Any

from heliograph.ids import signal_id
from heliograph.testing.kernel import jsonb as j
from heliograph.testing.kernel.jsonb import get, get_text
from heliograph.testing.kernel.limits import rejection
from heliograph.testing.kernel.tables import Project, Row
from heliograph.testing.kernel.transaction import Transaction


def owner_at(tables: Project, run_id: str, seq: int) -> str | None:
    """The run that recorded one position of a run's log, like `_owner_at`."""
    run = tables.runs.get(run_id)
    while run is not None and run["forked_seq"] is not None and seq <= run["forked_seq"]:
        run = tables.runs.get(run["forked_from"])
    return None if run is None else str(run["run_id"])


def log_parts(tables: Project, run_id: str) -> list[tuple[str, int, int]]:
    """The parts of a run's log, its own first: the run that recorded them, and the positions after which and up to which."""
    parts, upto, run = list[tuple[str, int, int]](), 2**63 - 1, tables.runs.get(run_id)
    while run is not None:
        parts.append((run["run_id"], run["forked_seq"] or 0, upto))
        upto, run = parts[-1][1], tables.runs.get(run["forked_from"])
    return parts


def root_id(tables: Project, run_id: str) -> str:
    """The id of the first signal of a run's log."""
    return signal_id(owner_at(tables, run_id, 1) or run_id, 1)


def fork_of(tx: Transaction, item: Any) -> Row:
    """The fork of a run to be started: {owner, seq, activations, rejection}. The position is 0 for any other run.

    Bug: fork_changes_origin.
    """
    given = get(item, "fork")
    if not isinstance(given, dict):
        return {"owner": None, "seq": 0, "activations": 0, "rejection": None}
    run_id, seq = str(get_text(given, "run_id")), j.get_whole(given, "seq") or 0
    owner = owner_at(tx.tables, run_id, seq)
    if owner is not None and "fork_changes_origin" in tx.bugs:
        tx.set(tx.tables.runs[owner], version=tx.tables.runs[owner]["version"] + 1)
    return {
        "owner": owner, "seq": seq, "activations": j.get_whole(given, "activations") or 0,
        "rejection": _reject_fork(tx, given, run_id, seq, owner),
    }  # fmt: skip


def turns_of(fork: Any) -> list[Any]:
    """The turns that start again in a fork. None stands for a missing list."""
    given = get(fork, "turns")
    return [] if given is None else j.elements(given)


def _reject_fork(tx: Transaction, given: Any, run_id: str, seq: int, owner: str | None) -> Row | None:
    """The rejection of a fork. Nothing is ever pruned in memory. Bug: fork_splits_commit."""
    run = tx.tables.runs.get(run_id)
    if run is None or owner is None:
        return rejection("unknown_run", f"there is no run {run_id[:200]} to fork: name another run")
    if seq > run["signal_seq"]:
        return rejection("unknown_signal", f"run {run_id} has {run['signal_seq']} signals so far, and no signal {seq}: fork it at one that it has")  # fmt: skip
    commit = next(row for row in tx.tables.signals.of(owner) if 0 <= seq - row["seq"] < row["count"])
    last = commit["seq"] + commit["count"] - 1
    if last != seq and "fork_splits_commit" not in tx.bugs:
        return rejection("inside_commit", f"signal {seq} of run {run_id} was recorded together with those up to {last}: fork the run at {last}")  # fmt: skip
    if any(get_text(entry, "name") == "workflow:end" for entry in commit["entries"]):
        return rejection("run_ended", f"run {run_id} ended with signal {seq}, so nothing is left to do after it: fork the run at an earlier signal")  # fmt: skip
    for turn in turns_of(given):
        origin = get_text(turn, "origin")
        row = tx.tables.turns.get(origin)
        if row is None or row["run_id"] != owner or row["activation_seq"] > seq:
            return rejection("unknown_turn", f"run {run_id} activated no turn {(origin or 'null')[:200]} up to signal {seq}, or the turn is pruned: fork the run at a later signal")  # fmt: skip
    return None
