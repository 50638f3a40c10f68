"""The state document of a run: typed for its users, JSON in the ledger."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from typing import Any, Literal, get_origin

import pydantic
import pydantic_core

from heliograph.definitions.typed_dicts import usable
from heliograph.errors import InvalidInput, repr_of, safe_repr
from heliograph.signals.names import check_key
from heliograph.signals.payload import copied
from heliograph.signals.values import SECRETS, check_size, to_json
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
            adapter.rebuild(raise_errors=True)  # pydantic itself puts off what is missing until the first use
        except (pydantic.errors.PydanticUserError, NameError, TypeError) as error:
            raise InvalidInput(f"{self._name} cannot be the type of a state: {str(error).partition(chr(10))[0]}",
                               code="wrong_type", path="/state") from None  # fmt: skip
        except RecursionError:
            raise InvalidInput(
                f"{self._name} cannot be the type of a state: it contains itself; take TypedDict from typing_extensions, "
                "or a pydantic model", code="wrong_type", path="/state",
            ) from None  # fmt: skip
        return adapter

    @cached_property
    def keys(self) -> frozenset[str] | None:
        """The keys that the type names; None where any key will do.

        Raises InvalidInput for what is no type of a state, and for one whose document would be short of something:
        `wrong_type`, `invalid_state_key`, `lossy_state`.
        """
        if self.kind is None:
            return None
        keys = frozenset(check_key(key) for key in self._fields())
        for field, why in _losses(self._adapter.core_schema):
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
        raise InvalidInput(f"the type of a state is a pydantic model, a dataclass or a TypedDict, not "
                           f"{safe_repr(repr_of(self.kind))}; leave it out for any JSON object", code="wrong_type", path="/state")  # fmt: skip

    @property
    def takes_any_key(self) -> bool:
        return self.kind is None or self._config.get("extra") == "allow"

    def load(self, document: Mapping[str, Json], *, extra: Literal["forbid"] | None = None) -> Any:
        """The document as its type: a fresh object, whose changes change nothing else.

        extra: 'forbid' refuses keys that the type does not name; None does what the type says, which may drop them.

        Raises InvalidInput listing every field that does not fit.
        """
        try:
            # a copy: validation shares what it takes for granted (Any), and a shared list would be changed unseen
            return self._adapter.validate_python(copied(dict(document)), by_name=True, by_alias=True, extra=extra)
        except RecursionError:
            raise InvalidInput("the state cannot be written as JSON: it is nested too deep, or contains itself",
                               code="json_too_deep", path="/state") from None  # fmt: skip
        except pydantic.ValidationError as error:
            raise InvalidInput(f"the state does not fit {self._name}: {_problems(error)}", code="invalid_state",
                               path="/state") from None  # fmt: skip

    def dump(self, state: Any) -> JsonObject:
        """The state, or a mapping that fits its type, as a JSON object with all defaults filled in."""
        if self.kind is None and not isinstance(state, Mapping):
            raise InvalidInput(f"the state is an object, not {safe_repr(state)}", code="invalid_state", path="/state")
        if self.kind is None:
            document = to_json(dict(state), "/state")
        else:
            typed = self.load(state, extra=self._extra) if isinstance(state, Mapping) else self._check(state)
            # keys are the fields' own names, never their aliases: updates and reducers name them
            document = to_json(_plain(self._adapter, typed), "/state")
        if not isinstance(document, dict):
            raise InvalidInput(
                f"the state is an object, not {safe_repr(document)}", code="invalid_state", path="/state"
            )
        for key in document:
            check_key(key)
        check_size(document, "the state", "/state")
        return document

    def as_given(self, state: Any) -> Json:
        """What a caller gave as the state, without what its type fills in: defaults may differ from call to call.

        An object of the type is its document: what it holds, its maker gave it.
        """
        if not isinstance(state, Mapping):
            return self.dump(state)
        try:
            return to_json(_plain(_ANYTHING, dict(state)), "/state")
        except InvalidInput:  # only the type can write it
            return self.dump(state)

    @property
    def _config(self) -> Mapping[str, Any]:
        return getattr(self.kind, "model_config", None) or getattr(self.kind, "__pydantic_config__", None) or {}

    @property
    def _extra(self) -> Literal["forbid"] | None:
        """For keys in what a person writes: refused as misspelt, unless the type itself says what to do with more."""
        return None if "extra" in self._config else "forbid"

    def _check(self, state: Any) -> Any:
        try:
            return self._adapter.validate_python(state)
        except pydantic.ValidationError as error:
            raise InvalidInput(f"the state does not fit {self._name}: {_problems(error)}", code="invalid_state",
                               path="/state") from None  # fmt: skip

    @property
    def _name(self) -> str:
        return getattr(self.kind, "__name__", "an object")


def _plain(adapter: pydantic.TypeAdapter[Any], value: Any) -> Any:
    """`value` as dictionaries, lists and sets. Raises InvalidInput (`not_json`)."""
    try:
        return adapter.dump_python(value, by_alias=False, round_trip=True)
    except (pydantic_core.PydanticSerializationError, ValueError, TypeError, RecursionError) as error:
        hint = "; give a list instead of a set of objects" if isinstance(error, TypeError) else ""
        raise InvalidInput(f"the state cannot be written as JSON: {safe_repr(str(error))}{hint}", code="not_json",
                           path="/state") from None  # fmt: skip


def _losses(schema: Any, field: str = "") -> Iterator[tuple[str, str]]:
    """The fields, however deep, that would not come back from the ledger, and why not. schema: of pydantic-core."""
    if isinstance(schema, list | tuple):
        for item in schema:
            yield from _losses(item, field)
    if not isinstance(schema, dict):
        return
    if schema.get("type") == "dataclass-field":
        field = schema["name"]
    if schema.get("serialization_exclude") or schema.get("serialization_exclude_if"):
        yield field, "it is excluded when the state is written, so it would be lost after each turn; take exclude out"
    kind = schema.get("cls")
    if isinstance(kind, type) and issubclass(kind, SECRETS):
        yield field, "a secret is written as stars, so it would be lost; read it where it is used, not from the state"
    for key, item in schema.items():
        if key == "metadata":
            continue
        is_field = isinstance(item, dict) and item.get("type") in ("model-field", "typed-dict-field")
        yield from _losses(item, key if is_field else field)


def _problems(error: pydantic.ValidationError) -> str:
    return "; ".join(f"/{'/'.join(str(p) for p in e['loc'])}: {e['msg']}" for e in error.errors()[:50])
