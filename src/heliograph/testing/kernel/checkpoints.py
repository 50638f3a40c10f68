"""Checkpoints of runs in memory, like 11_checkpoints.sql.

The kernel looks after 16 signals in place of 256, and sizes do not matter, so that short simulated runs have checkpoints. They are at
other positions than those of PostgreSQL. A fork takes over the same from both.
"""

from __future__ import annotations

from itertools import takewhile
from typing import Any

from heliograph.ids import split_signal_id
from heliograph.testing.kernel import jsonb as j
from heliograph.testing.kernel.jsonb import get, get_text
from heliograph.testing.kernel.transaction import Transaction

_DISTANCE = 16
_KEPT = ("joins", "join_signals", "join_base", "turns", "failed", "partial", "skipped", "untrusted_keys", "session")
_ENDS = ("agent:completed", "agent:failed")


def checkpoint(tx: Transaction, run_id: str, before: int) -> None:
    """Record what the run knows at its newest signal, if a look is due. Bug: checkpoint_pending."""
    run, last = tx.tables.runs[run_id], next(tx.tables.checkpoints.newest_of(run_id), None)
    after = int(run["forked_seq"] or 0) if last is None else int(last["seq"])
    is_settled = not run["pending_reactions"] or "checkpoint_pending" in tx.bugs
    if run["status"] != "running" or not is_settled or not _is_due(before, int(run["signal_seq"]), after):
        return
    commits = list(takewhile(lambda row: row["seq"] > after, tx.tables.signals.newest_of(run_id)))
    entries = [(row["seq"], n, entry) for row in reversed(commits) for n, entry in enumerate(row["entries"])]
    ended = {_place(seq, get(entry, "parent")) for seq, _, entry in entries if get_text(entry, "name") in _ENDS}
    opened = [] if last is None else list(last["in_progress"])
    opened += [seq + n for seq, n, entry in entries if get_text(entry, "name") == "agent:activated"]
    memory = run["memory"] if isinstance(run["memory"], dict) else {}
    tx.insert(tx.tables.checkpoints, (run_id, run["signal_seq"]), {
        "run_id": run_id, "seq": run["signal_seq"], "state": run["state"],
        "memory": {key: memory[key] for key in _KEPT if memory.get(key)}, "activations": run["activations"],
        "in_progress": [at for at in opened if at not in ended],
    })  # fmt: skip


def _is_due(before: int, newest: int, after: int) -> bool:
    """Whether the distance from the last checkpoint, in looks, has reached or passed a power of two."""
    distance, earlier = newest // _DISTANCE - after // _DISTANCE, max(0, before // _DISTANCE - after // _DISTANCE)
    return earlier ^ distance > earlier


def _place(seq: int, parent: Any) -> int | None:
    """The position of a parent: an index in its commit, the position as a text, or the id of a signal."""
    if not isinstance(parent, str):
        return seq + (j.whole(parent) or 0)
    place = split_signal_id(parent)
    return int(parent) if parent.isdecimal() else None if place is None else place[1]
