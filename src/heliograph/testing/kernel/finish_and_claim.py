"""End turns and claim further ones in one transaction in memory, like 51_finish_and_claim.sql, under the same name."""

from __future__ import annotations

from typing import Any

from heliograph.testing.kernel.claim import claim
from heliograph.testing.kernel.finish import finish
from heliograph.testing.kernel.keys import check_keys
from heliograph.testing.kernel.tables import Row
from heliograph.testing.kernel.transaction import Transaction


def finish_and_claim(
    tx: Transaction, items: Any, targets: Any, worker: str, limit: int, lease_seconds: float
) -> dict[str, list[Row]]:
    """Finish items, and claim at most `limit` turns, less one for each item that did not end. A null of an answer is a missing key."""
    finished = [{key: value for key, value in row.items() if value is not None} for row in finish(tx, items)]
    left = limit - sum(row["outcome"] != "ok" for row in finished)
    if left < 1 <= limit:
        return {"finished": finished, "claimed": []}
    check_keys("claim", targets)
    return {"finished": finished, "claimed": claim(tx, targets, worker, left, lease_seconds)}
