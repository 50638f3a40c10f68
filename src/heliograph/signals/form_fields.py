"""The fields of a form, which is a JSON Schema: one for each property of an object, or one for any other answer. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heliograph.error_text import safe_repr
from heliograph.types import Json, JsonObject

_SCALARS = ("string", "integer", "number", "boolean")


@dataclass(frozen=True, slots=True, eq=False)  # a key of values; its options may be lists, which have no hash
class Field:
    """One value that a person gives. name: None for the whole answer. kind: a type of JSON Schema, or `json`. options: the possible values."""

    name: str | None
    kind: str
    options: tuple[Json, ...] = ()
    is_required: bool = True
    may_be_null: bool = False

    @property
    def prompt(self) -> str:
        """The text before the line, like `days (integer)`."""
        return self.described(200)

    def described(self, limit: int) -> str:
        """The name and the type or the options, each in at most `limit` characters."""
        names = {"string": "text", "boolean": "y or n", "json": "JSON"}
        what = " or ".join(option_text(each) for each in self.options) or names.get(self.kind, self.kind)
        optional = "" if self.is_required and not self.may_be_null else ", may be empty"
        return f"{safe_repr(self.name or 'answer', limit)} ({safe_repr(what, limit)}{optional})"


def fields_of(form: JsonObject) -> Sequence[Field]:
    """The fields of a form: those of an object, or the whole answer as one.

    Required fields are first, in the order of `required`: the database keeps the order of this list, but not that of the properties.
    """
    properties = form.get("properties")
    if form.get("type") != "object" or not isinstance(properties, dict) or not properties or "$ref" in form:
        return [_field(None, form, {}, is_required=True)]
    required, definitions = form.get("required"), form.get("$defs")
    places = (
        {name: at for at, name in enumerate(required) if isinstance(name, str)} if isinstance(required, list) else {}
    )
    known = definitions if isinstance(definitions, dict) else {}
    ordered = sorted(properties, key=lambda name: places.get(name, len(places)))
    return [_field(name, properties[name], known, is_required=name in places) for name in ordered]


def fields_text(form: JsonObject, limit: int) -> str:
    """The fields in one line, like `to (text), days (integer)`. limit: see `Field.described`."""
    return ", ".join(field.described(limit) for field in fields_of(form))


def option_text(value: Json) -> str:
    """An option as a person reads and types it: a text, or else JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _field(name: str | None, schema: Any, definitions: Mapping[str, Any], *, is_required: bool) -> Field:
    found = _defined(schema, definitions)
    kinds = found.get("anyOf")
    may_be_null = False
    if isinstance(kinds, list):
        others = [each for each in kinds if each != {"type": "null"}]
        may_be_null = len(others) < len(kinds)
        found = _defined(others[0], definitions) if len(others) == 1 else {}
    options = found.get("enum")
    if isinstance(options, list) and options:
        return Field(name, "string", tuple(options), is_required, may_be_null)
    kind = found.get("type")
    return Field(name, kind if kind in _SCALARS else "json", (), is_required, may_be_null)


def _defined(schema: Any, definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    """A schema, or the definition that it names: pydantic has one for each class of an enum."""
    reference = schema.get("$ref") if isinstance(schema, dict) else None
    found = definitions.get(reference.removeprefix("#/$defs/")) if isinstance(reference, str) else schema
    return found if isinstance(found, dict) else {}
