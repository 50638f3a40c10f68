"""The state document of a run: typed for its users, JSON in the ledger."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal

import msgspec
import pydantic
import pydantic_core

from heliograph.errors import InvalidInput, shown
from heliograph.reactive.typed_dict import usable
from heliograph.signals.payload import check_json
from heliograph.types import Json, JsonObject

DOCUMENT_BYTES_MAX = 16 * 1024 * 1024  # of a state, and of an output: every turn reads and writes the whole (S11)


class StateShape:
    """The type of a workflow's state: a pydantic model, a dataclass, a TypedDict, or None for any JSON object."""

    def __init__(self, kind: Any = None):
        self.kind = usable(kind)

    @cached_property
    def _adapter(self) -> pydantic.TypeAdapter[Any]:
        try:
            return pydantic.TypeAdapter(dict[str, Any] if self.kind is None else self.kind)
        except pydantic.errors.PydanticUserError as error:
            raise InvalidInput(f"{self._name} cannot be the type of a state: {error.message}", code="wrong_type",
                               path="/state") from None  # fmt: skip

    @cached_property
    def keys(self) -> frozenset[str] | None:
        """The keys that the type names; None where any key will do. Raises InvalidInput for what is no type of a state."""
        if self.kind is None:
            return None
        assert self._adapter is not None  # made now, so that a type of no use is refused before anything runs
        fields = getattr(self.kind, "model_fields", None) or getattr(self.kind, "__dataclass_fields__", None)
        return frozenset(fields or getattr(self.kind, "__annotations__", {}))

    def load(self, document: Mapping[str, Json], *, extra: Literal["forbid"] | None = None) -> Any:
        """The document as its type: a fresh object, whose changes change nothing else.

        extra: 'forbid' refuses keys that the type does not name; None does what the type says, which may drop them.

        Raises InvalidInput listing every field that does not fit.
        """
        try:
            # a copy: validation shares what it takes for granted (Any), and a shared list would be changed unseen
            return self._adapter.validate_python(
                copy.deepcopy(dict(document)), by_name=True, by_alias=True, extra=extra
            )
        except pydantic.ValidationError as error:
            raise InvalidInput(f"the state does not fit {self._name}: {_problems(error)}", code="invalid_state",
                               path="/state") from None  # fmt: skip

    def dump(self, state: Any) -> JsonObject:
        """The state, or a mapping that fits its type, as a JSON object with all defaults filled in."""
        if self.kind is None and not isinstance(state, Mapping):
            raise InvalidInput(f"the state is an object, not {shown(state)}", code="invalid_state", path="/state")
        if self.kind is None:
            document = to_json(state, "/state")
        else:
            typed = self.load(state, extra=self._extra) if isinstance(state, Mapping) else self._check(state)
            # keys are the fields' own names, never their aliases: updates and reducers name them
            document = to_json(self._adapter.dump_python(typed, by_alias=False, round_trip=True), "/state")
        if not isinstance(document, dict):
            raise InvalidInput(f"the state is an object, not {shown(document)}", code="invalid_state", path="/state")
        check_size(document, "the state", "/state")
        return document

    @cached_property
    def _extra(self) -> Literal["forbid"] | None:
        """For keys in what a person writes: refused as misspelt, unless the type itself says what to do with more."""
        config = getattr(self.kind, "model_config", None) or getattr(self.kind, "__pydantic_config__", None) or {}
        return None if "extra" in config else "forbid"

    def _check(self, state: Any) -> Any:
        try:
            return self._adapter.validate_python(state)
        except pydantic.ValidationError as error:
            raise InvalidInput(f"the state does not fit {self._name}: {_problems(error)}", code="invalid_state",
                               path="/state") from None  # fmt: skip

    @property
    def _name(self) -> str:
        return getattr(self.kind, "__name__", "an object")


def to_json(value: Any, path: str = "") -> Json:
    """`value` as JSON: models, dataclasses, dates, enums and sets included.

    Raises InvalidInput (`not_json`, or what check_json says) where there is no JSON for it.
    """
    try:
        plain = pydantic_core.to_jsonable_python(value)
    except (pydantic_core.PydanticSerializationError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{shown(value)} cannot be written as JSON: {shown(str(error))}", code="not_json",
                           path=path) from None  # fmt: skip
    return check_json(plain, path)


def check_size(document: Json, what: str, path: str) -> None:
    """Raises InvalidInput (`too_large`)."""
    size = len(msgspec.json.encode(document))
    if size > DOCUMENT_BYTES_MAX:
        raise InvalidInput(f"{what} has {size} bytes, the limit is {DOCUMENT_BYTES_MAX}; keep large things elsewhere and "
                           "their names here", code="too_large", path=path)  # fmt: skip


def _problems(error: pydantic.ValidationError) -> str:
    return "; ".join(f"/{'/'.join(str(p) for p in e['loc'])}: {e['msg']}" for e in error.errors()[:50])
