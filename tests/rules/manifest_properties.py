"""Walk every property of a manifest's JSON Schema, and build documents that have it."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

Path = tuple[str | int, ...]
_ALTERNATIVES = ("anyOf", "oneOf", "allOf")


def resolved(root: Mapping[str, Any], schema: Any) -> Mapping[str, Any]:
    """A subschema, with its reference followed."""
    while isinstance(schema, Mapping) and isinstance(schema.get("$ref"), str):
        found: Any = root
        for key in schema["$ref"].removeprefix("#/").split("/"):
            found = found[key]
        schema = found
    return schema if isinstance(schema, Mapping) else {}


def properties(
    root: Mapping[str, Any], schema: Any, path: Path = (), seen: tuple[int, ...] = ()
) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Yield the path and the schema of each value that has no properties of its own. Recursive schemas are followed once."""
    schema = resolved(root, schema)
    if id(schema) in seen:
        return
    seen = (*seen, id(schema))
    below = [(key, each) for key, each in schema.get("properties", {}).items()]
    if isinstance(schema.get("items"), Mapping) and _has_properties(root, schema["items"]):
        below.append((0, schema["items"]))
    parts = [each for key in _ALTERNATIVES for each in schema.get(key, ()) if _has_properties(root, each)]
    if not below and not parts:
        yield path, schema
    for key, each in below:
        yield from properties(root, each, (*path, key), seen)
    for each in parts:
        yield from properties(root, each, path, seen)


def _has_properties(root: Mapping[str, Any], schema: Any) -> bool:
    schema = resolved(root, schema)
    return "properties" in schema or any(
        _has_properties(root, each) for key in _ALTERNATIVES for each in schema.get(key, ())
    )


def samples(root: Mapping[str, Any], schema: Any) -> list[Any]:
    """Values that a schema allows, as far as its type, enumeration and range decide that."""
    schema = resolved(root, schema)
    if "const" in schema:
        return [schema["const"]]
    if "enum" in schema:
        return list(schema["enum"])
    for key in _ALTERNATIVES:
        if schema.get(key):
            return [value for each in schema[key] for value in samples(root, each)]
    low = schema.get("minimum", 0)
    kind = schema.get("type")
    found: dict[str, list[Any]] = {
        "boolean": [True, False], "string": ["7m", "sample"], "integer": [low + 7, low + 1], "number": [low + 0.25, low + 7.5],
        "array": [["sample"]], "object": [{"sample": "sample"}],
    }  # fmt: skip
    return found.get(kind[0] if isinstance(kind, list) else kind or "", ["sample", 7, True, ["sample"]])


def with_value(document: Any, path: Path, value: Any) -> Any:
    """A copy of a document with a value at a path, whose objects and lists are made where they are missing."""
    made = copy.deepcopy(document)
    owner = made
    for key, following in zip(path, [*path[1:], None], strict=True):
        item: Any = value if following is None else [] if isinstance(following, int) else {}
        if isinstance(owner, list):
            if len(owner) <= int(key):
                owner.append(item)
        elif following is None or not isinstance(owner.get(key), list if isinstance(following, int) else dict):
            owner[key] = item
        owner = owner[key]
    return made


def without(document: Any, path: Path) -> Any:
    """A copy of a document without the value at a path."""
    made = copy.deepcopy(document)
    owner = made
    for key in path[:-1]:
        owner = owner[key]
    del owner[path[-1]]
    return made


def pointer_of(path: Path) -> str:
    return "".join(f"/{key}" for key in path)
