"""References of plan steps to earlier outputs: `{"$step": 1, "path": "/summary"}` is a part of the output of the first step.

Nothing is executed. A reference is replaced once: an output that looks like a reference stays as it is. `{"$literal": value}`
becomes the value, without a search for references in it. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from heliograph.error_text import repr_of, safe_repr
from heliograph.errors import InvalidInput
from heliograph.json_pointer import is_index, tokens_of
from heliograph.types import Json, JsonObject

_STEP = "$step"
_LITERAL = "$literal"
_CODE = "invalid_reference"


def check_references(value: Json, place: int) -> None:
    """Check the references in an argument or a task of the step at `place`, counted from 1. Raises InvalidInput."""
    for each in _references(value):
        number, path = each.get(_STEP), each.get("path", "")
        if type(number) is not int or not 1 <= number < place:
            earlier = f"1 to {place - 1}" if place > 1 else "none before the first"
            raise _invalid(each, f"step {place} may refer to earlier steps ({earlier}), by their numbers")
        if not isinstance(path, str) or (path and not path.startswith("/")):
            raise _invalid(each, "its path must be a JSON pointer, for example /summary")
        if each.keys() - {_STEP, "path"}:
            raise _invalid(each, f"a reference has {_STEP} and path only")


def literal(value: Json) -> Json:
    """Return an argument that becomes exactly `value`: the value itself, unless it could be read as a reference."""
    escaped: JsonObject = {_LITERAL: value}
    return escaped if _has_key(value, (_STEP, _LITERAL)) else value


def resolved(value: Json, outputs: Sequence[tuple[Json] | None]) -> Json:
    """Return `value` with the referenced outputs in place of its references.

    outputs: of the earlier steps, each in a tuple; None for a failed step. Raises InvalidInput (`invalid_reference`) for an
    output that is not there.
    """
    if isinstance(value, list):
        return [resolved(each, outputs) for each in value]
    if not isinstance(value, dict):
        return value
    if _is_literal(value):
        return value[_LITERAL]
    if _STEP not in value:
        return {key: resolved(each, outputs) for key, each in value.items()}
    number: Any = value[_STEP]
    output = outputs[number - 1]
    if output is None:
        raise _invalid(value, f"step {number} failed, so it has no output")
    found: Json = output[0]
    for key in tokens_of(str(value.get("path", ""))):
        found = _inside(value, found, key)
    return found


def _inside(reference: Json, container: Json, key: str) -> Json:
    if isinstance(container, dict) and key in container:
        return container[key]
    if isinstance(container, list) and is_index(key) and int(key) < len(container):
        return container[int(key)]
    has = f"the keys {', '.join(sorted(container))}" if isinstance(container, dict) else f"{len(container)} items" if isinstance(
        container, list) else "no parts"  # fmt: skip
    raise _invalid(reference, f"the output has no {safe_repr(key)} there; it has {safe_repr(has, 200)}")


def _references(value: Json) -> list[dict[str, Json]]:
    """The objects with the key $step, outside of each other and of literals."""
    found, todo = list[dict[str, Json]](), [value]
    while todo:
        each = todo.pop()
        if isinstance(each, dict) and _is_literal(each):
            continue
        if isinstance(each, dict) and _STEP in each:
            found.append(each)
        elif isinstance(each, dict | list):
            todo.extend(each.values() if isinstance(each, dict) else each)
    return found


def _is_literal(value: JsonObject) -> bool:
    return value.keys() == {_LITERAL}


def _has_key(value: Json, keys: tuple[str, ...]) -> bool:
    """Whether an object anywhere in the value has one of these keys."""
    todo = [value]
    while todo:
        each = todo.pop()
        if isinstance(each, dict):
            if not each.keys().isdisjoint(keys):
                return True
            todo.extend(each.values())
        elif isinstance(each, list):
            todo.extend(each)
    return False


def _invalid(reference: Json, problem: str) -> InvalidInput:
    return InvalidInput(f"the reference {safe_repr(repr_of(reference))} of a plan is invalid: {problem}", code=_CODE)
