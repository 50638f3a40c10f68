"""Check the budgets and prices that authors write, and convert them to the kernel's units."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from heliograph.error_text import repr_of, safe_repr
from heliograph.errors import InvalidInput

MICROS_PER_USD = 1_000_000
_MOST = 10**15  # the largest amount that the kernel counts
_KERNEL_NAMES = {"tokens": "tokens", "usd": "micros", "model_calls": "model_calls", "tool_calls": "tool_calls"}
_WHOLE = ("tokens", "model_calls", "tool_calls")


def check_budget(budget: Any, what: str = "a budget", path: str = "/budget") -> dict[str, int | float] | None:
    """Return a copy of a budget such as {"tokens": 50_000, "usd": 2.5, "model_calls": 10, "tool_calls": 40}; None for None.

    Raises InvalidInput: `wrong_type`, `required_field`, `unknown_field`, `out_of_range`.
    """
    if budget is None:
        return None
    if not isinstance(budget, Mapping):
        raise InvalidInput(f"{what} must be an object such as {{'tokens': 50_000, 'usd': 2.5}}, not {safe_repr(repr_of(budget))}",
                           code="wrong_type", path=path)  # fmt: skip
    known = ", ".join(_KERNEL_NAMES)
    if not budget:
        raise InvalidInput(f"{what} is empty; give one or more of {known}", code="required_field", path=path)
    for kind, most in budget.items():
        if kind not in _KERNEL_NAMES:
            raise InvalidInput(
                f"{what} has no {safe_repr(repr_of(kind))}; there are {known}", code="unknown_field", path=path
            )
        _check_most(f"{what}: {kind}", kind, most, f"{path}/{kind}")
    return dict(budget)


def amounts_of(budget: Mapping[str, int | float]) -> dict[str, int]:
    """Convert a budget to the units of the kernel: whole numbers, with money in millionths of a dollar."""
    return {
        _KERNEL_NAMES[kind]: round(most * MICROS_PER_USD) if kind == "usd" else int(most)
        for kind, most in budget.items()
    }


def least_of(*budgets: Mapping[str, int] | None) -> dict[str, int] | None:
    """Combine budgets to the strictest one: the smallest amount of each kind."""
    given = [budget for budget in budgets if budget is not None]
    kinds = {kind for budget in given for kind in budget}
    return {kind: min(b[kind] for b in given if kind in b) for kind in sorted(kinds)} or None


def check_price(price: Any, what: str, path: str) -> tuple[float, float] | None:
    """Return the dollars per million input and output tokens of a price such as {"input": 3.0, "output": 15.0}.

    Raises InvalidInput.
    """
    if price is None:
        return None
    if not isinstance(price, Mapping) or set(price) != {"input", "output"}:
        raise InvalidInput(f"{what} must be in dollars per million tokens, such as {{'input': 3.0, 'output': 15.0}}, not "
                           f"{safe_repr(repr_of(price))}", code="wrong_type", path=path)  # fmt: skip
    for part, usd in price.items():
        if isinstance(usd, bool) or not isinstance(usd, int | float) or not 0 <= usd <= MICROS_PER_USD:
            raise InvalidInput(f"{what}: {part} must be a number of dollars from 0 to {MICROS_PER_USD}, not {safe_repr(repr_of(usd))}",
                               code="out_of_range", path=f"{path}/{part}")  # fmt: skip
    return float(price["input"]), float(price["output"])


def _check_most(what: str, kind: str, most: Any, path: str) -> None:
    is_number = isinstance(most, int | float) and not isinstance(most, bool)
    if is_number and kind in _WHOLE and isinstance(most, float):
        raise InvalidInput(f"{what} must be a whole number, not {most}", code="wrong_type", path=path)
    if not is_number or not 0 <= most * (MICROS_PER_USD if kind == "usd" else 1) <= _MOST:  # False for NaN, too
        raise InvalidInput(f"{what} must be a number from 0 to {_MOST // (MICROS_PER_USD if kind == 'usd' else 1)}, not "
                           f"{safe_repr(repr_of(most))}", code="out_of_range", path=path)  # fmt: skip
