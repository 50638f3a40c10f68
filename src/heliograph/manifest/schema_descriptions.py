"""Descriptions of all properties of a manifest's schema, for editors: what a property means, and what Heliograph does with it.

A property that Heliograph carries out has its description in the schema's file. All other properties get theirs here, from the meaning of
the name and from the reason why the property has no effect, so that each of these texts stands in one place.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from heliograph.json_pointer import pointer as join
from heliograph.json_pointer import value_at
from heliograph.manifest.agent_manifest import INFORMATION
from heliograph.manifest.property_words import MEANINGS
from heliograph.manifest.schemas import schema_of_kind
from heliograph.manifest.unsupported_inputs import REASONS, REASONS_OF_STEPS

_PARTS = ("items", "additionalProperties", "then", "else")
_ALTERNATIVES = ("allOf", "anyOf", "oneOf")
_WORDS = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])|[^A-Za-z0-9_\-]+")
_AGENT = "Agent"
_GENERAL = (
    "/definitions/JSONSchemaDefinition/properties"  # the keywords of JSON Schema, at each place that has a schema
)
_NO_EFFECT = "No effect in Heliograph"


def schema_text(kind: str) -> str:
    """Return the JSON Schema of a kind as text, with all descriptions."""
    return json.dumps(described(schema_of_kind(kind)), indent=1, ensure_ascii=False) + "\n"


def described(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema in which every property has a description."""
    made: dict[str, Any] = copy.deepcopy(dict(schema))
    effects: dict[int, dict[str, None]] = {}
    found = list(properties_with_places(made))
    general = {id(each) for each in (value_at(made, _GENERAL) or {}).values()}
    around = {
        place for node, path, _ in found if "description" in node and id(node) not in general for place in _places_around(path)
    }  # fmt: skip
    for node, path, kind in found:
        effects.setdefault(id(node), {})[_effect(path, kind, is_partial=path in around)] = None
    for node, path, _ in found:
        if "description" not in node:
            node["description"] = f"{_meaning(path, node)}. {_one_of(effects[id(node)])}."
    return made


def _one_of(effects: Collection[str]) -> str:
    """Return the effect of a property that several places share."""
    if len(effects) == 1:
        return next(iter(effects))
    has_none = all(each.startswith(_NO_EFFECT) for each in effects)
    return _NO_EFFECT if has_none else "What Heliograph does with it depends on its place"


def _places_around(path: str) -> Iterator[str]:
    while path:
        path = path.rpartition("/")[0]
        yield path


def properties_with_places(schema: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], str, str]]:
    """Yield each property of a schema with its pointer in a manifest, and the kind of the manifest."""
    return _properties(schema, schema, "", _AGENT, ())


def _properties(
    root: Mapping[str, Any], node: Any, path: str, kind: str, seen: tuple[int, ...]
) -> Iterator[tuple[dict[str, Any], str, str]]:
    """Yield the properties below a part of the schema. Recursive schemas are followed once."""
    if not isinstance(node, dict) or id(node) in seen:
        return
    seen = (*seen, id(node))
    kind = _kind_of(node) or kind
    for key, each in node.get("properties", {}).items():
        if isinstance(each, dict):
            yield each, join(path, key), kind
            yield from _properties(root, each, join(path, key), kind, seen)
    if isinstance(reference := node.get("$ref"), str):
        yield from _properties(root, value_at(root, reference.removeprefix("#")), path, kind, seen)
    for key in _PARTS:
        yield from _properties(root, node.get(key), path, kind, seen)
    for key in _ALTERNATIVES:
        for each in node.get(key, ()):
            yield from _properties(root, each, path, kind, seen)


def _kind_of(node: Mapping[str, Any]) -> str | None:
    """Return the kind for which a part of the schema holds: `if: {properties: {kind: {const: Task}}}`."""
    found = value_at(node, "/if/properties/kind/const")
    return found if isinstance(found, str) else None


def _meaning(path: str, node: Mapping[str, Any]) -> str:
    """Return what a property means: the text of its name, or else the words of its name and of what contains it."""
    owner, _, name = path.rpartition("/")
    around = _in_words(owner.rpartition("/")[2])
    if name in MEANINGS:
        return MEANINGS[name].replace(" of it", f" of {around}") if around else MEANINGS[name]
    text = _in_words(name)
    whole = f"{text[:1].upper()}{text[1:]}{f', of {around}' if around else ''}"
    return f"{whole}: true or false" if node.get("type") == "boolean" else whole


def _in_words(name: str) -> str:
    words = _WORDS.findall(name.replace("~1", "/").replace("~0", "~"))
    return " ".join(each if each.isupper() else each.lower() for each in words) or name


def _effect(path: str, kind: str, *, is_partial: bool) -> str:
    """Return what Heliograph does with a property that it does not carry out, or only in part."""
    reasons = REASONS if kind == _AGENT else REASONS_OF_STEPS.get(kind, {})
    place = path
    while place:
        if place in INFORMATION:
            return "People read it; Heliograph does not"
        if place in reasons:
            return f"{'Carried out in part' if is_partial else _NO_EFFECT}: {reasons[place]}"
        place = place.rpartition("/")[0]
    return "Carried out in part" if is_partial else _NO_EFFECT
