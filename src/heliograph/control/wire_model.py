"""The base of the control models: frozen values that are validated when they are built and when they are read."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, dataclass_transform

import pydantic

from heliograph.control.model_errors import invalid_input
from heliograph.control.rates import RateLimit
from heliograph.error_text import repr_of, safe_repr
from heliograph.errors import InvalidInput
from heliograph.signals.payload import copied
from heliograph.types import JsonObject

if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(pydantic.BaseModel)  # it has no public name

M = TypeVar("M", bound="WireModel")


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(pydantic.Field,))
class _Validated(ModelMetaclass):
    """Raise InvalidInput where pydantic raises its own error.

    Pydantic does not call this for a model inside another one, so paths begin at the value that the caller builds.
    """

    def __call__(cls, *args: Any, **fields: Any) -> Any:
        try:
            return super().__call__(*args, **fields)
        except pydantic.ValidationError as error:
            raise invalid_input(cls, error, "") from None  # type: ignore[arg-type]  # every class of it is a model


class WireModel(pydantic.BaseModel, metaclass=_Validated):
    """A frozen value with a form on the wire. Building one raises InvalidInput, with the JSON pointer of the problem.

    described: its name in messages, for example "the payload of a tool_call".
    """

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", validate_by_name=True, validate_by_alias=True)
    described: ClassVar[str] = "the value"

    def to_wire(self) -> JsonObject:
        """Convert the value to JSON. Optional fields without a value are omitted."""
        wire: JsonObject = {}
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if value is not None or field.is_required() or field.default is not None:
                wire[field.serialization_alias or name] = _to_json(value)
        return wire


def read_model(model: type[M], wire: Any, path: str = "") -> M:
    """Read a value from its form on the wire. path: its JSON pointer, with which the paths of errors begin. Raises InvalidInput."""
    try:
        return model.model_validate(as_object(wire, model.described, path), by_alias=True, by_name=False)
    except pydantic.ValidationError as error:
        raise invalid_input(model, error, path) from None


def as_object(wire: Any, described: str, path: str) -> dict[str, Any]:
    """Return a mapping as a dict. Raises InvalidInput (`wrong_type`)."""
    if not isinstance(wire, Mapping):
        raise InvalidInput(
            f"{described} must be an object, not {safe_repr(repr_of(wire))}", code="wrong_type", path=path or None
        )
    return dict(wire)


def format_time(at: datetime) -> str:
    """Format a time in UTC, for example 2024-01-15T10:30:00Z."""
    return at.isoformat().replace("+00:00", "Z")


def _to_json(value: Any) -> Any:
    if isinstance(value, WireModel):
        return value.to_wire()
    if isinstance(value, tuple):
        return [_to_json(item) for item in value]
    if isinstance(value, RateLimit):
        return str(value)
    return format_time(value) if isinstance(value, datetime) else copied(value)
