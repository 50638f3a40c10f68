"""A list of requests as one array for each of their columns, for the kernel's functions.

The type of a key decides its column: text, a whole number, a number or a boolean. Any other value is JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from heliograph.errors import KernelRejected
from heliograph.redaction import redacted_text

# These stand for arrays among the types of a function's arguments.
ITEMS = "items"
TARGETS = "targets"  # of a claim
_TYPES = {str: "text", int: "bigint", float: "float8", bool: "boolean"}
_ALLOWED: dict[str, set[type]] = {
    "text": {str, NoneType}, "bigint": {int, NoneType}, "float8": {int, float, NoneType}, "boolean": {bool, NoneType},
}  # fmt: skip
_KEY_CHARACTERS_MAX = 60


class Column(NamedTuple):
    """One key of a request or of an answer, and its SQL type."""

    name: str
    type: str


def columns_of(request: Any) -> tuple[Column, ...]:
    """Return the columns of a request of `heliograph.requests`, in the order of its keys."""
    return tuple(Column(key, _type_of(hint)) for key, hint in get_type_hints(request).items())


def arrays_of(
    columns: Sequence[Column], items: Any, encode: Callable[[object], Any], argument: str = "p_items"
) -> list[list[Any]]:
    """Return one array per column. A missing key is null; a JSON null is the value null. Texts are redacted.

    encode: encodes one JSON value. argument: the name of the list in errors. Raises KernelRejected for items that are not a list of
    objects, for an unknown key, and for a value of another type.
    """
    known = {column.name for column in columns}
    for item in items if isinstance(items, list) else [items]:
        if not isinstance(items, list) or not isinstance(item, dict):
            raise KernelRejected(f"{argument} is a list of objects, not of {type(item).__name__} (22023)")
        if not item.keys() <= known:
            raise KernelRejected(_unknown_key(item, columns, argument))
    return [_array(column, items, encode, argument) for column in columns]


def _array(
    column: Column, items: Sequence[dict[str, Any]], encode: Callable[[object], Any], argument: str
) -> list[Any]:
    name = column.name
    if column.type == "jsonb":
        return [encode(item[name]) if name in item else None for item in items]
    values, allowed = [item.get(name) for item in items], _ALLOWED[column.type]
    # rejected here, because the driver would take a list for a dimension of the array
    if not set(map(type, values)) <= allowed:
        wrong = next(value for value in values if type(value) not in allowed)
        raise KernelRejected(f"{argument}[].{name} has the type {column.type}, not {type(wrong).__name__} (22P02)")
    if column.type == "text":
        return [value if value is None else redacted_text(value) for value in values]
    return values


def _unknown_key(item: dict[str, Any], columns: Sequence[Column], argument: str) -> str:
    names = [column.name for column in columns]
    key = min(map(str, item.keys() - set(names)))[:_KEY_CHARACTERS_MAX]
    return f"{argument}[] has the unknown key {json.dumps(key, ensure_ascii=False)}; its keys are {', '.join(names)} (22023)"


def _type_of(hint: Any) -> str:
    if get_origin(hint) in (Union, UnionType):
        [hint] = [kind for kind in get_args(hint) if kind is not NoneType] if len(get_args(hint)) == 2 else [None]
    if get_origin(hint) is Literal:
        hint = type(get_args(hint)[0])
    return _TYPES.get(hint, "jsonb")
