"""Look up a part of a JSON Schema by the path that an error of the validator gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from heliograph.json_pointer import is_index, value_at

_REFERENCE_KEYS = ("$ref", "$dynamicRef")


def subschema_at(schema: Mapping[str, Any], path: Sequence[str | int]) -> Mapping[str, Any]:
    """Return the subschema at a path, which may lead through `$ref`; an empty one if the path leads elsewhere."""
    found: Any = schema
    for key in path:
        if key in _REFERENCE_KEYS and isinstance(found, Mapping):
            found = _target(schema, found.get(key))
        elif isinstance(found, Mapping):
            found = found.get(str(key), {})
        elif isinstance(found, list) and is_index(str(key)) and int(key) < len(found):
            found = found[int(key)]
        else:
            return {}
    return found if isinstance(found, Mapping) else {}


def _target(schema: Mapping[str, Any], reference: Any) -> Any:
    """Return the subschema that a reference inside the schema names."""
    is_inside = isinstance(reference, str) and reference.startswith("#")
    return value_at(schema, reference.removeprefix("#")) if is_inside else {}
