"""The JSON Schema of a tool's arguments, from the forms in which manifests write it."""

from __future__ import annotations

from typing import Any

from heliograph.types import JsonObject

# A key of these makes an object a JSON Schema. Without them, an object of objects has one parameter per key.
_OF_SCHEMAS = ("properties", "additionalProperties", "patternProperties", "$ref", "$defs", "definitions", "allOf", "anyOf", "oneOf")  # fmt: skip


def argument_schema(given: JsonObject) -> JsonObject:
    """Return the JSON Schema of arguments.

    Manifests also write the parameters directly, as in `parameters: {path: {type: string}}`, and mark the required ones with
    `required: true`. Both become the form of JSON Schema; everything else stays as it is written.
    """
    schema: JsonObject = given if _is_schema(given) else {"type": "object", "properties": given}
    return _with_lists(schema)


def _is_schema(given: JsonObject) -> bool:
    has_key = any(key in given for key in _OF_SCHEMAS) or isinstance(given.get("type"), str | list)
    return has_key or not given or not all(isinstance(each, dict) for each in given.values())


def _with_lists(schema: JsonObject) -> JsonObject:
    """Return a schema whose required parameters are a list. The mark of each of them, true or false, is removed."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return schema
    marked = [name for name, each in properties.items() if isinstance(each, dict) and each.get("required") is True]
    made: JsonObject = {**schema, "properties": {name: _of_parameter(each) for name, each in properties.items()}}
    listed: Any = schema.get("required", [])
    if marked and isinstance(listed, list):
        made["required"] = list(dict.fromkeys([*listed, *marked]))
    return made


def _of_parameter(given: Any) -> Any:
    """Return a parameter without its mark, and with lists in the objects within it."""
    if not isinstance(given, dict):
        return given
    own = {key: each for key, each in given.items() if key != "required" or not isinstance(each, bool)}
    if isinstance(own.get("items"), dict):
        own["items"] = _of_parameter(own["items"])
    return _with_lists(own)
