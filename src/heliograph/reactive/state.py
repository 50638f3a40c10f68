"""The state document of a run: typed for its users, JSON in the ledger."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Any, Literal, get_origin

import pydantic
import pydantic_core

from heliograph.definitions.losses import losses
from heliograph.definitions.typed_dicts import usable
from heliograph.error_text import repr_of, safe_repr
from heliograph.errors import InvalidInput
from heliograph.signals.names import check_key
from heliograph.signals.payload import copied
from heliograph.signals.values import check_size, to_json
from heliograph.types import Json, JsonObject

_ANYTHING = pydantic.TypeAdapter(Any)


class StateShape:
    """The type of a workflow's state: a pydantic model, a dataclass, a TypedDict, or None for any JSON object."""

    def __init__(self, kind: Any = None):
        self.kind = kind

    @cached_property
    def _adapter(self) -> pydantic.TypeAdapter[Any]:
        try:
            adapter = pydantic.TypeAdapter(dict[str, Any] if self.kind is None else usable(self.kind))
            adapter.rebuild(raise_errors=True)  # by default, pydantic reports missing types on first use
        except (pydantic.errors.PydanticUserError, NameError, TypeError) as error:
            raise InvalidInput(f"{self._name} cannot be the type of a state: {str(error).partition(chr(10))[0]}",
                               code="wrong_type", path="/state") from None  # fmt: skip
        except RecursionError:
            raise InvalidInput(
                f"{self._name} cannot be the type of a state, because it contains itself; use TypedDict from "
                "typing_extensions, or a pydantic model", code="wrong_type", path="/state",
            ) from None  # fmt: skip
        return adapter

    @cached_property
    def keys(self) -> frozenset[str] | None:
        """The keys of the type; None if any key is allowed.

        Raises InvalidInput: `wrong_type` and `invalid_state_key` for a type that cannot be a state, `lossy_state` for one whose
        document would lose fields.
        """
        if self.kind is None:
            return None
        keys = frozenset(check_key(key) for key in self._fields())
        for field, why in losses(self._adapter.core_schema, "the state"):
            raise InvalidInput(f"the state cannot have {field}: {why}", code="lossy_state", path=f"/state/{field}")
        return keys

    def _fields(self) -> Collection[str]:
        kind = get_origin(self.kind) or self.kind
        if isinstance(kind, type):
            if issubclass(kind, pydantic.BaseModel) and not issubclass(kind, pydantic.RootModel):
                return kind.model_fields
            if dataclasses.is_dataclass(kind):
                return [each.name for each in dataclasses.fields(kind) if each.init]
            if hasattr(kind, "__required_keys__"):
                return list(kind.__annotations__)
        raise InvalidInput(f"the type of a state must be a pydantic model, a dataclass or a TypedDict, not "
                           f"{safe_repr(repr_of(self.kind))}; leave it out for any JSON object", code="wrong_type", path="/state")  # fmt: skip

    @property
    def takes_any_key(self) -> bool:
        return self.kind is None or self._config.get("extra") == "allow"

    def load(self, document: Mapping[str, Json], *, extra: Literal["forbid"] | None = None) -> Any:
        """The document as a new object of its type, which shares nothing with the document.

        extra: 'forbid' rejects unknown keys; None follows the type's own setting, which may drop them.

        Raises InvalidInput with every field that does not match.
        """
        try:
            own = copied(dict(document))  # a copy, because validation does not copy values of type Any
            if self.kind is None:
                return own
            return self._adapter.validate_python(own, by_name=True, by_alias=True, extra=extra)
        except RecursionError:
            raise InvalidInput("the state cannot be written as JSON: it is nested too deeply, or contains itself",
                               code="json_too_deep", path="/state") from None  # fmt: skip
        except pydantic.ValidationError as error:
            raise InvalidInput(f"the state is not a valid {self._name}: {_problems(error)}", code="invalid_state",
                               path="/state") from None  # fmt: skip

    def dump(self, state: Any) -> JsonObject:
        """The state, or a mapping of its fields, as a JSON object with all defaults filled in."""
        if self.kind is None and not isinstance(state, Mapping):
            raise InvalidInput(
                f"the state must be an object, not {safe_repr(state)}", code="invalid_state", path="/state"
            )
        if self.kind is None:
            document = to_json(dict(state), "/state")
        else:
            typed = self.load(state, extra=self._extra) if isinstance(state, Mapping) else self._check(state)
            # keys are the fields' own names, not their aliases, because updates and reducers use these
            document = to_json(_plain(self._adapter, typed), "/state")
        if not isinstance(document, dict):
            raise InvalidInput(
                f"the state must be an object, not {safe_repr(document)}", code="invalid_state", path="/state"
            )
        for key in document:
            check_key(key)
        check_size(document, "the state", "/state")
        return document

    def as_given(self, state: Any) -> Json:
        """The state as a caller passed it, without the type's defaults, which may differ from call to call.

        An object of the type is returned as its whole document.
        """
        if not isinstance(state, Mapping):
            return self.dump(state)
        try:
            return to_json(_plain(_ANYTHING, dict(state)), "/state")
        except InvalidInput:  # only the type can convert it to JSON
            return self.dump(state)

    @property
    def _config(self) -> Mapping[str, Any]:
        return getattr(self.kind, "model_config", None) or getattr(self.kind, "__pydantic_config__", None) or {}

    @property
    def _extra(self) -> Literal["forbid"] | None:
        """How to treat unknown keys in a person's input: as misspelt, unless the type itself allows them."""
        return None if "extra" in self._config else "forbid"

    def _check(self, state: Any) -> Any:
        try:
            return self._adapter.validate_python(state)
        except pydantic.ValidationError as error:
            raise InvalidInput(f"the state is not a valid {self._name}: {_problems(error)}", code="invalid_state",
                               path="/state") from None  # fmt: skip

    @property
    def _name(self) -> str:
        return getattr(self.kind, "__name__", "an object")


def _plain(adapter: pydantic.TypeAdapter[Any], value: Any) -> Any:
    """`value` as dictionaries, lists, sets and scalars. Raises InvalidInput (`not_json`)."""
    try:
        return adapter.dump_python(value, by_alias=False, round_trip=True)
    except (pydantic_core.PydanticSerializationError, ValueError, TypeError, RecursionError) as error:
        hint = "; give a list instead of a set of objects" if isinstance(error, TypeError) else ""
        raise InvalidInput(f"the state cannot be written as JSON: {safe_repr(str(error))}{hint}", code="not_json",
                           path="/state") from None  # fmt: skip


def _problems(error: pydantic.ValidationError) -> str:
    return "; ".join(f"/{'/'.join(str(p) for p in e['loc'])}: {e['msg']}" for e in error.errors()[:50])
