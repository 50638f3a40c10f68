"""The oracle of payloads: each standard signal has the payload that the catalog promises."""

from __future__ import annotations

from heliograph.signals.catalog import CATALOG, Entry, Shape
from heliograph.signals.names import RESERVED_FIRST_SEGMENTS, RESERVED_NAMES
from heliograph.signals.pattern_table import PatternTable
from heliograph.types import Json

# "any" is not checked. A bool is no number here, although Python's bool is an int.
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "object": (dict,),
    "list": (list,),
    "string or null": (str, type(None)),
}

_TABLE: PatternTable[Entry] = PatternTable((entry.name, entry) for entry in CATALOG)


def check_standard(name: str, payload: Json) -> list[str]:
    """Return the problems of a standard signal's payload: none for a valid payload, and none for a custom signal.

    A reserved name that is not in the catalog is also a problem.
    """
    entries = _TABLE.match(name)
    if entries:
        return [problem for entry in entries for problem in _compare(payload, entry.payload, name)]
    if name in RESERVED_NAMES or name.partition(":")[0] in RESERVED_FIRST_SEGMENTS:
        return [f"{name}: a reserved name that is not in the catalog"]
    return []


def _compare(value: Json, shape: Shape, where: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{where}: expected an object, not {type(value).__name__}"]
    problems: list[str] = []
    for declared, expected in shape.items():
        key = declared.removesuffix("?")
        if key not in value:
            if key == declared:
                problems.append(f"{where}: '{key}' is missing")
        elif isinstance(expected, str):
            problems += _compare_scalar(value[key], expected, f"{where}.{key}")
        else:
            problems += _compare(value[key], expected, f"{where}.{key}")
    return problems


def _compare_scalar(value: Json, expected: str, where: str) -> list[str]:
    if expected == "any" or type(value) in _TYPES[expected]:
        return []
    return [f"{where}: expected {expected}, not {type(value).__name__}"]
