"""Check the definitions of result fields, and check an output against them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput
from heliograph.types import Json, JsonObject

FIELDS_MAX = 100
FIELD_NAME_MAX = 200
TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,), "number": (int, float), "integer": (int,), "boolean": (bool,), "object": (dict,), "array": (list,),
}  # fmt: skip
_KEYS = ("name", "type", "required", "description")


def check_fields(fields: Any, path: str = "/result_fields") -> list[JsonObject]:
    """Check a list of {name, type?, required?, description?}, and return it with `required` filled in (True by default).

    Raises InvalidInput: `wrong_type`, `required_field`, `unknown_field`, `invalid_enum`, `too_long`, `duplicate_entry`.
    """
    if not isinstance(fields, list | tuple):
        raise InvalidInput(f"result_fields must be a list of fields such as {{'name': 'summary'}}, not {safe_repr(fields)}",
                           code="wrong_type", path=path)  # fmt: skip
    if len(fields) > FIELDS_MAX:
        raise InvalidInput(
            f"result_fields has {len(fields)} fields, the limit is {FIELDS_MAX}", code="too_long", path=path
        )
    checked = [_check_field(field, f"{path}/{n}") for n, field in enumerate(fields)]
    names = [field["name"] for field in checked]
    if twice := next((name for n, name in enumerate(names) if name in names[:n]), None):
        raise InvalidInput(
            f"result_fields has {safe_repr(twice)} twice; remove one of them", code="duplicate_entry", path=path
        )
    return checked


def problems_of(fields: Sequence[Mapping[str, Any]], output: Json) -> list[str]:
    """Return the problems of an output: missing fields and wrong types. An output that is not an object has no fields."""
    values = output if isinstance(output, dict) else {}
    problems = []
    for field in fields:
        name, kind = field["name"], field.get("type")
        if name not in values:
            if field.get("required", True):
                problems.append(f"{name} is missing")
        elif kind is not None and not _has_type(values[name], kind):
            problems.append(f"{name} is not of type {kind}")
    return problems


def _check_field(field: Any, path: str) -> JsonObject:
    if not isinstance(field, Mapping):
        raise InvalidInput(f"a field must be an object such as {{'name': 'summary'}}, not {safe_repr(field)}", code="wrong_type",
                           path=path)  # fmt: skip
    for key in field:
        if key not in _KEYS:
            raise InvalidInput(
                f"a field has no {safe_repr(key)}; there are {', '.join(_KEYS)}", code="unknown_field", path=path
            )
    name, kind, required = field.get("name"), field.get("type"), field.get("required", True)
    if not isinstance(name, str) or not 0 < len(name) <= FIELD_NAME_MAX:
        raise InvalidInput(f"the name of a field must have 1 to {FIELD_NAME_MAX} characters, not {safe_repr(name)}",
                           code="required_field", path=f"{path}/name")  # fmt: skip
    if kind is not None and (not isinstance(kind, str) or kind not in TYPES):
        raise InvalidInput(f"the type of field {safe_repr(name)} must be one of {', '.join(TYPES)}, not {safe_repr(kind)}",
                           code="invalid_enum", path=f"{path}/type")  # fmt: skip
    if not isinstance(required, bool):
        raise InvalidInput(f"'required' of field {safe_repr(name)} must be true or false, not {safe_repr(required)}",
                           code="wrong_type", path=f"{path}/required")  # fmt: skip
    return {**field, "required": required}


def _has_type(value: Json, kind: str) -> bool:
    if isinstance(value, bool):  # Python counts it as an int
        return kind == "boolean"
    return isinstance(value, TYPES[kind])
