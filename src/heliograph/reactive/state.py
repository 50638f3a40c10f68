"""The state document of a run: typed for its users, JSON in the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import pydantic
import pydantic_core

from heliograph.errors import InvalidInput, shown
from heliograph.signals.payload import check_json
from heliograph.types import Json, JsonObject


class StateShape:
    """The type of a workflow's state: a pydantic model, a dataclass, a TypedDict, or None for any JSON object."""

    def __init__(self, kind: Any = None):
        self.kind = kind

    @cached_property
    def _adapter(self) -> pydantic.TypeAdapter[Any]:
        return pydantic.TypeAdapter(dict[str, Any] if self.kind is None else self.kind)

    @cached_property
    def keys(self) -> frozenset[str] | None:
        """The keys that the type names; None where any key will do."""
        if self.kind is None:
            return None
        fields = getattr(self.kind, "model_fields", None) or getattr(self.kind, "__dataclass_fields__", None)
        return frozenset(fields or getattr(self.kind, "__annotations__", {}))

    def load(self, document: Mapping[str, Json]) -> Any:
        """The document as its type: a fresh object, whose changes change nothing else.

        Raises InvalidInput listing every field that does not fit.
        """
        try:
            return self._adapter.validate_python(dict(document))
        except pydantic.ValidationError as error:
            raise InvalidInput(f"the state does not fit {self._name}: {_problems(error)}", code="invalid_state",
                               path="/state") from None  # fmt: skip

    def dump(self, state: Any) -> JsonObject:
        """The state, or a mapping that fits its type, as a JSON object with all defaults filled in."""
        if self.kind is None and not isinstance(state, Mapping):
            raise InvalidInput(f"the state is an object, not {shown(state)}", code="invalid_state", path="/state")
        if self.kind is None or not isinstance(state, Mapping):
            document = to_json(state, "/state")
        else:
            document = to_json(self._adapter.dump_python(self.load(state), mode="json"), "/state")
        if not isinstance(document, dict):
            raise InvalidInput(f"the state is an object, not {shown(document)}", code="invalid_state", path="/state")
        return document

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


def _problems(error: pydantic.ValidationError) -> str:
    return "; ".join(f"/{'/'.join(str(p) for p in e['loc'])}: {e['msg']}" for e in error.errors()[:50])
