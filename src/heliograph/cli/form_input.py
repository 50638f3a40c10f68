"""Read the answer to a form from lines that a person types: one line for each field of an object, JSON for anything else. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput
from heliograph.signals.json_parser import parse_json
from heliograph.types import Json, JsonObject

_YES, _NO = ("y", "yes", "true"), ("n", "no", "false")
_SCALARS = ("string", "integer", "number", "boolean")


@dataclass(frozen=True, slots=True)
class Field:
    """One line to type. name: None for the whole answer. kind: a type of JSON Schema, or `json`. options: the possible values."""

    name: str | None
    kind: str
    options: tuple[Json, ...] = ()
    is_required: bool = True
    may_be_null: bool = False

    @property
    def prompt(self) -> str:
        """The text before the line, like `days (integer)`."""
        names = {"string": "text", "boolean": "y or n", "json": "JSON"}
        what = " or ".join(_text(each) for each in self.options) or names.get(self.kind, self.kind)
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


def value_of(field: Field, text: str) -> Json:
    """The value that a line means for a field that is not empty. Raises InvalidInput."""
    wanted = text.strip()
    if field.options:
        if wanted.isdigit() and 1 <= int(wanted) <= len(field.options) and wanted not in map(_text, field.options):
            return field.options[int(wanted) - 1]
        for each in field.options:
            if _text(each) == wanted:
                return each
        raise InvalidInput(f"choose one of {', '.join(map(_text, field.options))}", code="invalid_answer")
    match field.kind:
        case "string":
            return text
        case "boolean" if wanted.lower() in (*_YES, *_NO):
            return wanted.lower() in _YES
        case "integer" | "number" | "json":
            return _parsed(field.kind, wanted)
        case _:
            raise InvalidInput(f"type y or n, not {safe_repr(wanted)}", code="invalid_answer")


def object_of(values: Mapping[Field, Json]) -> Json:
    """The answer with these values of its fields."""
    if any(field.name is None for field in values):
        return next(iter(values.values()))
    return {str(field.name): value for field, value in values.items()}


def _parsed(kind: str, text: str) -> Json:
    try:
        value = parse_json(text.encode("utf-8", "surrogateescape"))
    except InvalidInput as error:
        what = "JSON" if kind == "json" else f"an {kind}" if kind == "integer" else f"a {kind}"
        raise InvalidInput(f"type {what}, not {safe_repr(text)}: {error.message}", code="invalid_answer") from None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind != "json" and (not is_number or (kind == "integer" and not isinstance(value, int))):
        raise InvalidInput(
            f"type {'an integer' if kind == 'integer' else 'a number'}, not {safe_repr(text)}", code="invalid_answer"
        )
    return value


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


def _text(value: Json) -> str:
    return value if isinstance(value, str) else repr(value)
