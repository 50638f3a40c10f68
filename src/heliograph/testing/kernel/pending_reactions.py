"""74_pending_reactions.sql for the in-memory kernel, under the same names without the underscore."""

from __future__ import annotations

from typing import Any

from heliograph.codes import RESOURCE_EXHAUSTED
from heliograph.testing.kernel import jsonb as j
from heliograph.testing.kernel.column_size import column_size
from heliograph.testing.kernel.endings import get_raw
from heliograph.testing.kernel.head import is_pending, payload_of
from heliograph.testing.kernel.runs import run_view
from heliograph.testing.kernel.sweep_batches import check_sweep, first
from heliograph.testing.kernel.tables import Row, Transaction


def sweep_pending_reactions(tx: Transaction, targets: Any, limit: int | None) -> list[Row]:
    check_sweep(limit)
    return runs_with_pending(tx, targets, limit, j.BYTES_MAX)


def runs_with_pending(tx: Transaction, targets: Any, limit: int | None, bytes_max: int) -> list[Row]:
    wanted = set(j.texts(targets))
    owing = [r for r in tx.tables.runs.values() if r["owed"] > 0 and r["target"] in wanted]
    answer: list[Row] = []
    bytes_left = bytes_max
    for run in first(owing, lambda r: (r["refusals"], r["run_id"]), limit):
        item, size = _readable_run(tx, run, bytes_max)
        if size > bytes_left and answer and "failure" not in item:
            break
        answer.append(item)
        bytes_left -= size
        if bytes_left <= 0:
            break
    return answer


def _readable_run(tx: Transaction, run: Row, bytes_max: int) -> tuple[Row, int]:
    """One item of sweep_pending_reactions's answer, and the size of its contents. No value in memory is too large to be built."""
    entries = [row["entries"] for row in tx.tables.signals.of(run["run_id"]) if row["owed"]]
    size = sum(j.octets(value) for value in (run["state"], run["memory"], *entries))
    if size <= bytes_max:
        item = _run_with_pending(tx, run)
        size = max(size, column_size(item))
        if size <= bytes_max:
            return item, size
    message = f"its state and its pending signals have {size} bytes; workers read at most {bytes_max}"
    failure = {"code": RESOURCE_EXHAUSTED, "message": message}
    view = run_view(tx, {**run, "state": {}, "memory": {}})
    item = {"target": run["target"], "run": view, "refusals": run["refusals"], "signals": [], "failure": failure}
    return item, size


def _run_with_pending(tx: Transaction, run: Row) -> Row:
    signals = [
        {"seq": row["seq"] + n, "name": get_raw(entry, "name"), "payload": payload_of(entry), "agent": get_raw(entry, "agent"),
         "turn_id": row["agent_turn_id"]}
        for row in tx.tables.signals.of(run["run_id"]) if row["owed"]
        for n, entry in enumerate(row["entries"]) if is_pending(entry)
    ]  # fmt: skip
    view = run_view(tx, run)
    return {"target": run["target"], "run": view, "refusals": run["refusals"], "signals": signals or None}
