"""What the budgets of a turn are and what is left of them, as their authors wrote them."""

from __future__ import annotations

from dataclasses import dataclass

from heliograph.definitions.budgets import MICROS_PER_USD
from heliograph.ledger.reader import BudgetRow


@dataclass(frozen=True, slots=True)
class Budget:
    """One kind of a budget: tokens, usd, model_calls or tool_calls.

    turn_id: whose it is; it holds for all that this turn delegates. reserved: by calls under way. over: what calls used
    beyond what they had reserved, when nothing was left for it.
    """

    turn_id: str
    kind: str
    most: float
    used: float
    reserved: float
    over: float

    @property
    def remaining(self) -> float:
        return max(self.most - self.used - self.reserved - self.over, 0)


def budget_of(row: BudgetRow) -> Budget:
    amounts: list[float] = [row.most, row.used, row.reserved, row.over]
    if row.kind != "micros":
        return Budget(row.turn_id, row.kind, *amounts)
    return Budget(row.turn_id, "usd", *(amount / MICROS_PER_USD for amount in amounts))
