"""Describe why a payload does not match its definition, without a part of the payload.

Messages of pydantic may quote the value, and so may a validator of the author. The description has the place and the kind of each
problem. A key is part of a place only if the definition has it: other keys are data.
"""

from __future__ import annotations

from typing import Any

import pydantic

from heliograph.json_pointer import is_index, pointer, tokens_of
from heliograph.types import Json, JsonObject

_PROBLEMS_MAX = 10
_UNKNOWN_KEY = "*"


def describe_problems(error: pydantic.ValidationError, document: Json, keys: frozenset[str]) -> tuple[str, str]:
    """Return the JSON pointer of the first problem, and a description of all. keys: those that the definition has."""
    details = error.errors(include_input=False, include_context=False, include_url=False)
    found = [(_pointer(each["loc"], document, keys), each["type"]) for each in details[:_PROBLEMS_MAX]]
    rest = f" and {len(details) - _PROBLEMS_MAX} more" if len(details) > _PROBLEMS_MAX else ""
    return found[0][0], "; ".join(f"{place or '/'}: {kind}" for place, kind in found) + rest


def keys_of(schema: JsonObject) -> frozenset[str]:
    """The keys of all objects that a JSON Schema describes, at any depth."""
    found: set[str] = set()
    todo: list[Any] = [schema]
    while todo:
        item = todo.pop()
        if isinstance(item, dict):
            properties = item.get("properties")
            found |= properties.keys() if isinstance(properties, dict) else set()
        todo += item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
    return frozenset(found)


def extra_behaviors(core_schema: Any) -> frozenset[str]:
    """What the types of a schema of pydantic-core, at any depth, say about keys that they do not have: allow, ignore, forbid."""
    found: set[str] = set()
    todo: list[Any] = [core_schema]
    while todo:
        item = todo.pop()
        if isinstance(item, dict):
            found |= {
                item[key] for key in ("extra_behavior", "extra_fields_behavior") if isinstance(item.get(key), str)
            }
            todo += (value for key, value in item.items() if key != "metadata")
        elif isinstance(item, list | tuple):
            todo += item
    return frozenset(found)


def masked(path: str, keys: frozenset[str]) -> str:
    """A JSON pointer without the keys that the definition does not have."""
    return pointer("", *(step if step in keys or is_index(step) else _UNKNOWN_KEY for step in tokens_of(path)))


def _pointer(place: tuple[int | str, ...], document: Any, keys: frozenset[str]) -> str:
    """The JSON pointer of a place of pydantic, which also names members of unions: these are no part of the document."""
    steps: list[str | int] = []
    for step in place:
        if isinstance(document, dict) and isinstance(step, str) and (step in document or step in keys):
            steps.append(step if step in keys else _UNKNOWN_KEY)
            document = document.get(step)
        elif isinstance(document, list) and isinstance(step, int):
            steps.append(step)
            document = document[step] if step < len(document) else None
    return pointer("", *steps)
