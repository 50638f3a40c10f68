"""The payload of `state:<key>:changed`: the new value of a key, or of a list or an object only the parts that changed. Pure.

A list that grows at its end is recorded by its new items, and other lists and objects by the parts that differ. So a log grows with
what is new, not with the whole value (decisions 0145 and 0180).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from heliograph.signals.payload import DEPTH_MAX
from heliograph.signals.value_parts import Parts, changed_parts, same_items, with_parts
from heliograph.types import Json, JsonObject

PREFIX, SUFFIX = "state:", ":changed"
KEYS_MAX = DEPTH_MAX  # of a pointer: no value in a state is deeper


def change_payload(before: Json, after: Json) -> JsonObject:
    """The payload for a changed value: `{value}`, or one that keeps a part of the value before.

    A list that begins as it did before has `{value, from_index}`. Any other list, or an object, has `{value, parts, removed}`: the value has
    the new parts by their JSON pointers. before: None also for a key that the state did not have.
    """
    found = changed_parts(before, after)
    if found is None:
        return {"value": after}
    if isinstance(before, list) and isinstance(after, list) and (same := same_items(before, after)):
        own = [path for path in found.changed if path.count("/") == 1]
        if len(own) == len(found.changed) == len(after) - same:  # all that follows is new
            return {"value": after[same:], "from_index": same}
    removed: JsonObject = {"removed": [*found.removed]} if found.removed else {}
    return {"value": found.changed, "parts": True, **removed}


def changed_value(before: Json, payload: Any) -> Json:
    """The value after a change. A value whose beginning is unknown has only the parts that are recorded."""
    if not isinstance(payload, dict):
        return None
    if _has_parts(payload):
        return with_parts(before, Parts(payload["value"], payload.get("removed", [])))
    value = payload.get("value")
    index = _from_index(payload)
    if not index or not isinstance(value, list):
        return value
    return [*before[:index], *value] if isinstance(before, list) else value


def is_partial(payload: Any) -> bool:
    """Whether a change has only a part of the value, so that the value before is needed, too."""
    return isinstance(payload, dict) and (_from_index(payload) > 0 or _has_parts(payload))


def has_long_pointer(payload: Any) -> bool:
    """Whether a change has a part whose pointer is longer than any value is deep, so that somebody has edited it."""
    if not isinstance(payload, dict) or payload.get("parts") is not True:
        return False
    return any(isinstance(path, str) and path.count("/") > KEYS_MAX for path in _paths(payload))


def changed_key(name: str) -> str | None:
    """The key of the state that a signal changes; None for another signal."""
    return name[len(PREFIX) : -len(SUFFIX)] if name.startswith(PREFIX) and name.endswith(SUFFIX) else None


def _from_index(payload: dict[str, Any]) -> int:
    """How many items of a list a change has kept; 0 for a whole value."""
    index = payload.get("from_index")
    return index if type(index) is int and index > 0 else 0


def _has_parts(payload: dict[str, Any]) -> bool:
    """Whether a payload has parts by their pointers. A payload of another origin, whose keys are no pointers, has a whole value."""
    return (
        payload.get("parts") is True
        and isinstance(payload.get("value"), dict)
        and isinstance(payload.get("removed", []), list)
        and all(
            isinstance(path, str) and path.startswith("/") and path.count("/") <= KEYS_MAX for path in _paths(payload)
        )
    )


def _paths(payload: dict[str, Any]) -> Iterator[Any]:
    """What should be pointers in a payload."""
    for key in ("value", "removed"):
        found = payload.get(key)
        yield from found if isinstance(found, dict | list) else ()
