"""`pg_column_size` of a jsonb value: its size in PostgreSQL, to the byte. The SQL compares some limits with it."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from heliograph.testing.kernel.jsonb import encode

_HEADER = 4  # of a value, of a container, and of each of its entries


def is_larger(value: Any, limit: int) -> bool:
    """Whether the size of the value exceeds `limit`. Its text gives an upper bound, so most values are not measured."""
    return 6 * len(encode(value)) + 16 > limit and column_size(value) > limit


def column_size(value: Any) -> int:
    """A scalar is kept as an array of one."""
    return _HEADER + _container(value if isinstance(value, list | dict) else [value], 0)


def _container(value: list[Any] | dict[str, Any], at: int) -> int:
    """How many bytes it takes when it begins at offset `at`, where it may have to be aligned."""
    items = value
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: (len(key.encode()), key.encode()))
        items = [*keys, *(value[key] for key in keys)]
    end = at + -at % 4 + _HEADER + _HEADER * len(items)
    for item in items:
        end += _item(item, end)
    return end - at


def _item(value: Any, at: int) -> int:
    if value is None or isinstance(value, bool):
        return 0
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, list | dict):
        return _container(value, at)
    return -at % 4 + _numeric(Decimal(repr(value)))


def _numeric(value: Decimal) -> int:
    """A header, two bytes of sign, scale and weight, and two for each four digits from the first to the last that counts."""
    digits = format(abs(value), "f")
    whole, _, fraction = digits.partition(".")
    whole = whole.zfill(-(-len(whole) // 4) * 4)
    fraction = fraction.ljust(-(-len(fraction) // 4) * 4, "0")
    groups = [(whole + fraction)[n : n + 4] for n in range(0, len(whole + fraction), 4)]
    while groups and groups[0] == "0000":
        groups.pop(0)
    while groups and groups[-1] == "0000":
        groups.pop()
    return _HEADER + 2 + 2 * len(groups)
