"""Convert pydantic's validation errors to InvalidInput, with the problem, the object, the next step and the JSON pointer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, get_args

import pydantic
from pydantic_core import ErrorDetails, PydanticCustomError

from heliograph.error_text import repr_of, safe_repr
from heliograph.errors import InvalidInput
from heliograph.json_pointer import pointer

# The errors of pydantic that these models can cause, and what each expects.
_EXPECTED = {
    "bool_type": "true or false",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "tuple_type": "a list",
    "is_instance_of": "a signal",
}


def problem(code: str, message: str, path: str = "") -> PydanticCustomError:
    """Return the error that a validator raises. message: follows the name of the field. path: a JSON pointer inside the field."""
    return PydanticCustomError(code, "{message}", {"message": message, "path": path})


def nearest(name: object, known: Iterable[str]) -> str:
    """Return `; did you mean x?` for the name that is most similar to `name`, or an empty text."""
    similar = get_close_matches(name, list(known), n=1) if isinstance(name, str) else []
    return f"; did you mean {similar[0]}?" if similar else ""


def invalid_input(model: type[pydantic.BaseModel], error: pydantic.ValidationError, path: str) -> InvalidInput:
    """Describe the first problem that pydantic found in a model whose JSON pointer is `path`."""
    problems = error.errors(include_url=False)
    first = problems[0]
    code, message = _describe(model, first, problems)
    location = first["loc"][:-1] if first["type"] == "invalid_key" else first["loc"]
    place = pointer(path, *location) + str((first.get("ctx") or {}).get("path", ""))
    return InvalidInput(message, code=code, path=safe_repr(place, 300) or None)


def _describe(model: type[pydantic.BaseModel], first: ErrorDetails, problems: list[ErrorDetails]) -> tuple[str, str]:
    """Return the code and the message of a problem."""
    kind, location = first["type"], first["loc"]
    owner = _model_at(model, location[:-1])
    what = _described(owner)
    key = str(location[-1]) if location else ""
    if kind == "missing":
        unknown = [
            str(p["loc"][-1]) for p in problems if p["type"] == "extra_forbidden" and p["loc"][:-1] == location[:-1]
        ]
        similar = get_close_matches(key, unknown, n=1)
        return "required_field", f"{what} has no '{key}'" + (
            f"; rename '{safe_repr(similar[0])}'" if similar else "; add it"
        )
    if kind == "extra_forbidden":
        fields = _keys_of(owner)
        known = nearest(key, fields) or f"; its fields are {', '.join(fields)}"
        return "unknown_field", f"{what} has no field '{safe_repr(key)}'{known}"
    if kind == "invalid_key":
        return "wrong_type", f"the keys of {what} must be strings, not {safe_repr(first['input'])}"
    subject = f"'{safe_repr(key)}' of {what}" if location else what
    if location and isinstance(location[-1], int):
        subject = f"item {key} of '{location[-2]}' of {what}"
    if kind == "literal_error":
        allowed = [str(value) for value in get_args(_annotation(owner, key))]
        given = first["input"]
        return (
            "invalid_enum",
            f"{subject} must be one of {', '.join(allowed)}, not {safe_repr(given)}{nearest(given, allowed)}",
        )
    if kind in _EXPECTED:
        return "wrong_type", f"{subject} must be {_EXPECTED[kind]}, not {safe_repr(repr_of(first['input']))}"
    return kind, f"{subject} {first['msg']}"


def _described(model: Any) -> str:
    return str(getattr(model, "described", "the value"))


def _keys_of(model: type[pydantic.BaseModel]) -> list[str]:
    return [field.serialization_alias or name for name, field in model.model_fields.items()]


def _model_at(model: type[pydantic.BaseModel], location: tuple[str | int, ...]) -> type[pydantic.BaseModel]:
    """Return the model of the object at a place inside `model`."""
    for key in location:
        if isinstance(key, str):
            model = next(kind for kind in _flat(_annotation(model, key)) if issubclass(kind, pydantic.BaseModel))
    return model


def _annotation(model: type[pydantic.BaseModel], key: str) -> Any:
    """Return the type of a field, by its key on the wire or by its name, without `| None`."""
    names: Mapping[str, str] = {field.serialization_alias or name: name for name, field in model.model_fields.items()}
    annotation = model.model_fields[names.get(key, key)].annotation
    inner = [kind for kind in get_args(annotation) if kind is not type(None)]
    return (
        inner[0]
        if len(inner) == 1 and len(get_args(annotation)) == 2 and type(None) in get_args(annotation)
        else annotation
    )


def _flat(annotation: Any) -> list[type]:
    """Return the classes of which a type consists."""
    if isinstance(annotation, type) and not get_args(annotation):
        return [annotation]
    return [kind for argument in get_args(annotation) for kind in _flat(argument)]
