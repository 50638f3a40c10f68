"""The fields of a form, which is a JSON Schema: one for each property of an object, or one for any other answer. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heliograph.error_text import safe_repr
from heliograph.types import Json, JsonObject

_SCALARS = ("string", "integer", "number", "boolean")


@dataclass(frozen=True, slots=True)
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
        names = {"string": "text", "boolean": "y or n", "json": "JSON"}
        what = " or ".join(option_text(each) for each in self.options) or names.get(self.kind, self.kind)
        optional = "" if self.is_required and not self.may_be_null else ", may be empty"
        return f"{safe_repr(self.name or 'answer', 60)} ({safe_repr(what, 200)}{optional})"


def fields_of(form: JsonObject) -> Sequence[Field]:
    """The fields of a form: those of an object, or the whole answer as one."""
    properties = form.get("properties")
    if form.get("type") != "object" or not isinstance(properties, dict) or not properties or "$ref" in form:
        return [_field(None, form, is_required=True)]
    required = form.get("required")
    names = required if isinstance(required, list) else []
    return [_field(name, schema, is_required=name in names) for name, schema in properties.items()]


def fields_text(form: JsonObject) -> str:
    """The fields in one line: `to (text), days (integer)`."""
    return ", ".join(field.prompt for field in fields_of(form))


def option_text(value: Json) -> str:
    """An option as a person reads and types it."""
    return value if isinstance(value, str) else repr(value)


def _field(name: str | None, schema: Any, *, is_required: bool) -> Field:
    found: Mapping[str, Any] = schema if isinstance(schema, dict) else {}
    kinds = found.get("anyOf")
    may_be_null = False
    if isinstance(kinds, list):
        others = [each for each in kinds if each != {"type": "null"}]
        may_be_null = len(others) < len(kinds)
        found = others[0] if len(others) == 1 and isinstance(others[0], dict) else {}
    options = found.get("enum")
    if isinstance(options, list) and options:
        return Field(name, "string", tuple(options), is_required, may_be_null)
    kind = found.get("type")
    return Field(name, kind if kind in _SCALARS else "json", (), is_required, may_be_null)
