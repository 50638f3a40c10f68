"""Forms: JSON Schemas that validate values from outside."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import jsonschema_rs
import pydantic

from heliograph.definitions.typed_dicts import usable
from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput
from heliograph.signals.values import to_json
from heliograph.types import Json, JsonObject


def validator_of(what: str, schema: Mapping[str, Any], path: str) -> jsonschema_rs.Validator:
    """Compile a JSON Schema. what: its name for messages. Raises InvalidInput for an invalid schema, or references to other documents."""
    try:
        return jsonschema_rs.validator_for(dict(schema), retriever=_reject_reference, validate_formats=True)
    except ValueError as error:
        raise InvalidInput(f"{what} is not a JSON Schema: {error}", code="invalid_schema", path=path) from error


def schema_of(what: str, form: Any, path: str) -> JsonObject:
    """Return the JSON Schema of a form: a schema, a pydantic model or any other type. Raises InvalidInput."""
    if isinstance(form, Mapping):
        schema = to_json(dict(form), path)
    else:
        try:
            schema = dict(_cached(_schema, form))
        except (pydantic.errors.PydanticUserError, NameError) as error:
            raise InvalidInput(f"{what} must be a JSON Schema, a pydantic model or another type, not {safe_repr(form)}: "
                               f"{safe_repr(str(error))}", code="wrong_type", path=path) from None  # fmt: skip
    assert isinstance(schema, dict)
    return schema


def adapter_of(what: str, kind: Any, path: str) -> pydantic.TypeAdapter[Any]:
    """Return the converter of a type, which is built once. what: its name for messages. Raises InvalidInput."""
    try:
        adapter: pydantic.TypeAdapter[Any] = _cached(_adapter, kind)
    except (pydantic.errors.PydanticUserError, NameError) as error:
        raise InvalidInput(f"{what} must be a type that pydantic can build from JSON, not {safe_repr(kind)}: "
                           f"{safe_repr(str(error))}", code="wrong_type", path=path) from None  # fmt: skip
    return adapter


@lru_cache(maxsize=1024)
def _adapter(kind: Any) -> pydantic.TypeAdapter[Any]:
    return pydantic.TypeAdapter(usable(kind))


@lru_cache(maxsize=1024)
def _schema(kind: Any) -> JsonObject:
    schema: JsonObject = _cached(_adapter, kind).json_schema()
    return schema


def _cached(build: Any, kind: Any) -> Any:
    """The value that a cached function builds of a type; one that cannot be hashed, like Annotated[int, [1]], is built each time."""
    try:
        hash(kind)
    except TypeError:
        return build.__wrapped__(kind)
    return build(kind)


def problems_in(validator: jsonschema_rs.Validator, value: Json, name: str) -> list[str]:
    """Return the problems of `value`, each with its place. name: stands for the value as a whole."""
    return [f"{'.'.join(map(str, e.instance_path)) or name}: {e.message}" for e in validator.iter_errors(value)]


def _reject_reference(uri: str) -> JsonObject:
    raise ValueError(f"it refers to {uri}, but references to other documents are not allowed; include the definition")
