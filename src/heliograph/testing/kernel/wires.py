"""The functions of 79_wires.sql for the in-memory kernel."""

from __future__ import annotations

from heliograph.testing.kernel.jsonb import Refusal
from heliograph.testing.kernel.tables import Transaction


def declare_wire(tx: Transaction, wire: str | None) -> str:
    if wire is None or not 1 <= len(wire.encode()) <= 200:
        raise Refusal("22023", "a wire has a name of 1 to 200 bytes")
    row = {"wire": wire, "declared_at": tx.now}
    return "declared" if tx.offer(tx.tables.wires, wire, row) else "duplicate"


def wires(tx: Transaction) -> list[str]:
    return sorted(str(row["wire"]) for row in tx.tables.wires.values())
