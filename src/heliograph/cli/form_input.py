"""Read the answer to a form from lines that a person types: one line for each field of an object, JSON for anything else. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput
from heliograph.signals.form_fields import Field, option_text
from heliograph.signals.json_parser import parse_json
from heliograph.types import Json

_YES, _NO = ("y", "yes", "true"), ("n", "no", "false")


def value_of(field: Field, text: str) -> Json:
    """The value that a line means for a field that is not empty. Raises InvalidInput."""
    wanted = text.strip()
    if field.options:
        if (
            wanted.isdigit()
            and 1 <= int(wanted) <= len(field.options)
            and wanted not in map(option_text, field.options)
        ):
            return field.options[int(wanted) - 1]
        for each in field.options:
            if option_text(each) == wanted:
                return each
        raise InvalidInput(f"choose one of {', '.join(map(option_text, field.options))}", code="invalid_answer")
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
