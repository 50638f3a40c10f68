"""What a fork shares of a log, in memory, like 86_shared_log.sql, under the same names."""

from __future__ import annotations

from typing import Any

from heliograph.testing.kernel.jsonb import get, get_text
from heliograph.testing.kernel.run_forks import log_parts, owner_at
from heliograph.testing.kernel.tables import Row, timestamp
from heliograph.testing.kernel.transaction import Transaction

_PAGE = 5000  # commits
_RUNTIME = ("agent:", "state:", "workflow:")


def read_shared_log(tx: Transaction, run_id: str, seq: int, names: list[str] | None, after: int | None) -> Row | None:
    """The last checkpoint of a run's log before the end of the commit with position `seq`, and the entries from there on."""
    owner = owner_at(tx.tables, run_id, seq)
    commit = next((row for row in tx.tables.signals.of(owner) if 0 <= seq - row["seq"] < row["count"]), None)
    if commit is None:
        return None
    last, parts = commit["seq"] + commit["count"] - 1, log_parts(tx.tables, run_id)
    found = [point for part, start, upto in parts for point in tx.tables.checkpoints.of(part)
             if start < point["seq"] <= min(upto, last)] if after is None else []  # fmt: skip
    point = max(found, key=lambda point: int(point["seq"]), default=None)
    begin = (0 if point is None else point["seq"]) if after is None else after
    commits = [row for part, start, upto in parts for row in tx.tables.signals.of(part)
               if max(start, begin) < row["seq"] <= min(upto, last)]  # fmt: skip
    commits = sorted(commits, key=lambda row: int(row["seq"]))[:_PAGE]
    end = commits[-1]["seq"] + commits[-1]["count"] - 1 if commits else last
    entries = [] if point is None else [_entry_at(tx, point["run_id"], at) for at in point["in_progress"]]
    entries += [[row["run_id"], row["seq"], n, entry] for row in commits for n, entry in enumerate(row["entries"])
                if _is_needed(entry, names)]  # fmt: skip
    return {
        "run_id": owner, "seq": last, "commit_seq": commit["seq"], "recorded_at": timestamp(commit["at"]),
        "checkpoint": point, "entries": entries, "next": end if end < last else None,
    }  # fmt: skip


def _entry_at(tx: Transaction, run_id: str, seq: int) -> list[Any]:
    row = next(
        row for row in tx.tables.signals.of(owner_at(tx.tables, run_id, seq)) if 0 <= seq - row["seq"] < row["count"]
    )
    return [row["run_id"], row["seq"], seq - row["seq"], row["entries"][seq - row["seq"]]]


def _is_needed(entry: Any, names: list[str] | None) -> bool:
    name = get_text(entry, "name") or ""
    return names is None or name.startswith(_RUNTIME) or name in names or get(entry, "is_pending") is True


def first_failure(tx: Transaction, run_id: str) -> int | None:
    """The first position of the commit in which the first turn of a run failed. None: no turn failed."""
    for part, start, upto in reversed(log_parts(tx.tables, run_id)):
        for row in tx.tables.signals.of(part):
            if start < row["seq"] <= upto and any(map(_has_failed, row["entries"])):
                return int(row["seq"])
    return None


def _has_failed(entry: Any) -> bool:
    outcome = get_text(get(entry, "payload"), "outcome")
    return get_text(entry, "name") == "agent:failed" and outcome not in ("success", "partial", "canceled")
