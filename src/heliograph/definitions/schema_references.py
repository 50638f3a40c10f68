"""Find a reference of a JSON Schema that leads back to itself without a step into the value: it describes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from heliograph.json_pointer import value_at

_ANCHORS = ("$anchor", "$dynamicAnchor")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_OF_SAME_VALUE = ("not", "if", "then", "else")  # their subschemas apply to the value itself
_LISTS_OF_SAME_VALUE = ("allOf", "anyOf", "oneOf")


def reference_cycle(schema: Mapping[str, Any]) -> str | None:
    """Return a reference of a schema that leads back to itself before any property or item; None without one."""
    done: set[int] = set()  # subschemas that lead to no such reference
    parts = list(_subschemas(schema))
    names = {f"#{name}": part for part in reversed(parts) for key in _ANCHORS if isinstance(name := part.get(key), str)}
    for start in parts:
        if (found := _cycle_from(start, schema, names, done)) is not None:
            return found
    return None


def _subschemas(schema: Any) -> Iterator[Mapping[str, Any]]:
    """Yield all objects within a schema, without recursion."""
    pending = [schema]
    while pending:
        value = pending.pop()
        if isinstance(value, Mapping):
            yield value
            pending += value.values()
        elif isinstance(value, list):
            pending += value


def _cycle_from(
    start: Mapping[str, Any], root: Mapping[str, Any], names: Mapping[str, Any], done: set[int]
) -> str | None:
    """Follow what applies to the same value, depth first. Return the reference that leads back to a subschema on the way."""
    way: list[tuple[int, Iterator[tuple[str, Any]]]] = [(id(start), _same_value(start, root, names))]
    on_way = {id(start)}
    while way:
        step = next(way[-1][1], None)
        if step is None:
            here, _ = way.pop()
            on_way.discard(here)
            done.add(here)
            continue
        reference, target = step
        if id(target) in on_way:
            return reference
        if isinstance(target, Mapping) and id(target) not in done:
            way.append((id(target), _same_value(target, root, names)))
            on_way.add(id(target))
    return None


def _same_value(
    schema: Mapping[str, Any], root: Mapping[str, Any], names: Mapping[str, Any]
) -> Iterator[tuple[str, Any]]:
    """Yield the subschemas that apply to the same value, each with the reference that leads there."""
    for key in _REFERENCES:
        if isinstance(reference := schema.get(key), str):
            yield reference, _target(root, names, reference)
    for key in _OF_SAME_VALUE:
        yield key, schema.get(key)
    for key in _LISTS_OF_SAME_VALUE:
        if isinstance(parts := schema.get(key), list):
            yield from ((key, part) for part in parts)


def _target(root: Mapping[str, Any], names: Mapping[str, Any], reference: str) -> Any:
    """Return what a reference inside the document names: the whole, a JSON pointer, or an anchor."""
    if reference in ("#", root.get("$id")):
        return root
    if not reference.startswith("#/"):
        return names.get(reference)
    return value_at(root, reference.removeprefix("#"))
