"""The payload of `state:<key>:changed`: the new value of a key, or of a list only its part from an index on. Pure.

A list that grows at its end is recorded by its new items. So a log grows with what is new, not with the whole list (decision 0145).
"""

from __future__ import annotations

from typing import Any

from heliograph.types import Json, JsonObject

PREFIX, SUFFIX = "state:", ":changed"


def change_payload(before: Json, after: Json) -> JsonObject:
    """The payload for a changed value: {value}, or {value, from_index} for a list that begins as it did before.

    before: None also for a key that the state did not have.
    """
    same = _same_items(before, after) if isinstance(before, list) and isinstance(after, list) else 0
    return {"value": after[same:], "from_index": same} if same and isinstance(after, list) else {"value": after}


def changed_value(before: Json, payload: Any) -> Json:
    """The value after a change. A list whose beginning is unknown has only the part that is recorded."""
    if not isinstance(payload, dict):
        return None
    index, value = from_index(payload), payload.get("value")
    if not index or not isinstance(value, list):
        return value
    return [*before[:index], *value] if isinstance(before, list) else value


def from_index(payload: Any) -> int:
    """How many items of a list a change has kept; 0 for a whole value."""
    index = payload.get("from_index") if isinstance(payload, dict) else None
    return index if type(index) is int and index > 0 else 0


def changed_key(name: str) -> str | None:
    """The key of the state that a signal changes; None for another signal."""
    return name[len(PREFIX) : -len(SUFFIX)] if name.startswith(PREFIX) and name.endswith(SUFFIX) else None


def _same_items(before: list[Json], after: list[Json]) -> int:
    """How many items at the beginning are the same JSON. Most often all of the shorter list are."""
    equal = shorter = min(len(before), len(after))
    if before[:shorter] != after[:shorter]:
        equal = next(n for n in range(shorter) if before[n] != after[n])
    return next((n for n, each in enumerate(map(_has_other_booleans, before, after[:equal])) if each), equal)


def _has_other_booleans(before: Any, after: Any) -> bool:
    """Whether two values that Python says are equal differ as JSON: True is equal to 1."""
    kind = type(after)
    if kind is list:
        return any(map(_has_other_booleans, before, after))
    if kind is not dict:
        return (kind is bool) is not (type(before) is bool)
    for key, each in after.items():  # noqa: SIM110  a loop is faster for short objects, of which lists have many
        if type(each) is not str and _has_other_booleans(before[key], each):
            return True
    return False
