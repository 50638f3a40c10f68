"""Calls that also claim in memory, like 51_finish_and_claim.sql and 65_calls_that_claim.sql, under the same names. A null of an answer is a missing key."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from heliograph.testing.kernel.claim import claim
from heliograph.testing.kernel.finish import finish
from heliograph.testing.kernel.keys import check_keys
from heliograph.testing.kernel.reports import report
from heliograph.testing.kernel.start import start_runs
from heliograph.testing.kernel.tables import Row
from heliograph.testing.kernel.transaction import Transaction


def finish_and_claim(
    tx: Transaction, items: Any, targets: Any, worker: str, limit: int, lease_seconds: float
) -> dict[str, list[Row]]:
    """Finish items, and claim at most `limit` turns, less one for each item that did not end."""
    finished = _without_nulls(finish(tx, items))
    left = limit - sum(row["outcome"] != "ok" for row in finished)
    if left < 1 <= limit:
        return {"finished": finished, "claimed": []}
    check_keys("claim", targets)
    return {"finished": finished, "claimed": claim(tx, targets, worker, left, lease_seconds)}


def start_and_claim(
    tx: Transaction, items: Any, targets: Any, worker: str, limit: int, lease_seconds: float
) -> dict[str, list[Row]]:
    started = _without_nulls(start_runs(tx, items))
    check_keys("claim", targets)
    return {"started": started, "claimed": claim(tx, targets, worker, limit, lease_seconds)}


def report_and_claim(
    tx: Transaction, items: Any, targets: Any, worker: str, limit: int, lease_seconds: float
) -> dict[str, list[Row]]:
    reported = _without_nulls(report(tx, items))
    check_keys("claim", targets)
    return {"reported": reported, "claimed": claim(tx, targets, worker, limit, lease_seconds)}


def _without_nulls(rows: Iterable[Row]) -> list[Row]:
    return [{key: value for key, value in row.items() if value is not None} for row in rows]
