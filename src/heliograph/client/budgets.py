"""The budgets of a turn and their use, in the units in which authors set them."""

from __future__ import annotations

from dataclasses import dataclass

from heliograph.definitions.budgets import MICROS_PER_USD
from heliograph.ledger.reader import BudgetRow


@dataclass(frozen=True, slots=True)
class Budget:
    """One kind of a budget: tokens, usd, model_calls or tool_calls.

    turn_id: the turn that the budget limits, with everything that it delegates. reserved: held for calls in progress.
    overspent: use beyond the budget, by calls that used more than they had reserved.
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
    amounts: list[float] = [row.amount_max, row.used, row.reserved, row.overspent]
    if row.kind != "micros":
        return Budget(row.turn_id, row.kind, *amounts)
    return Budget(row.turn_id, "usd", *(amount / MICROS_PER_USD for amount in amounts))
