"""Numbers of JSON as PostgreSQL keeps them in a column of type jsonb: exact decimals, without an exponent and without a sign of zero."""

from __future__ import annotations

from decimal import Decimal


def stored_number(value: float) -> float:
    """A number as it is read after it was stored. A float that Python writes with a positive exponent becomes an integer."""
    text = repr(value)
    if text == "-0.0":
        return 0.0
    return int(Decimal(text)) if "e+" in text else value


def is_same_number(left: object, right: object) -> bool:
    """Whether two values are numbers, and the same one once they are stored."""
    if not isinstance(left, int | float) or not isinstance(right, int | float):
        return False
    return stored_number(left) == stored_number(right)
