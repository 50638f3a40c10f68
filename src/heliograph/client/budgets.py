"""A turn's budgets and their use, in the units of their authors: money in dollars."""

from __future__ import annotations

from dataclasses import dataclass

from heliograph.definitions.budgets import MICROS_PER_USD
from heliograph.ledger.rows import BudgetRow


@dataclass(frozen=True, slots=True)
class Budget:
    """One limit of a budget.

    kind: tokens, usd, model_calls or tool_calls. turn_id: the turn that the budget limits, with everything that it delegates.
    amount_max: the limit. reserved: set aside for calls in progress. overspent: use beyond the limit, by calls that used more than they had
    reserved.
    """

    turn_id: str
    kind: str
    amount_max: float
    used: float
    reserved: float
    overspent: float

    @property
    def remaining(self) -> float:
        return max(self.amount_max - self.used - self.reserved - self.overspent, 0)


def budget_of(row: BudgetRow) -> Budget:
    """Convert a row of the ledger, which counts money in millionths of a dollar."""
    amounts: list[float] = [row.amount_max, row.used, row.reserved, row.overspent]
    if row.kind != "micros":
        return Budget(row.turn_id, row.kind, *amounts)
    return Budget(row.turn_id, "usd", *(amount / MICROS_PER_USD for amount in amounts))
