"""The definition of a signal: its name, the type of its payload, its description and its version."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, Generic, TypeVar

import pydantic
import pydantic_core

from heliograph.definitions.losses import losses
from heliograph.definitions.payload_problems import describe_problems, extra_behaviors, keys_of, masked
from heliograph.definitions.typed_dicts import usable
from heliograph.error_text import repr_of, safe_repr
from heliograph.errors import InvalidInput, SetupError
from heliograph.json_pointer import pointer
from heliograph.signals.names import check_emit_name
from heliograph.signals.payload import check_payload
from heliograph.signals.values import to_json
from heliograph.types import Json, JsonObject

P = TypeVar("P")

_TEXT_MAX = 2000


class SignalDefinition(Generic[P]):
    """A signal whose payload has a type. Made by `define_signal`, once; agents name it in `emits` and `activate_on`.

    place: the module and the line of the definition, for messages.
    """

    def __init__(self, name: str, payload: type[P], description: str, version: str, place: str):
        self.name = name
        self.type = payload
        self.description = description
        self.version = version
        self.place = place
        self._adapter = _adapter_of(name, payload)

    def __repr__(self) -> str:
        return f"<signal {self.name}, version {self.version}, defined at {self.place}>"

    @cached_property
    def schema(self) -> JsonObject:
        """The JSON Schema of the payload, as the log has it."""
        return self._adapter.json_schema(by_alias=False, mode="serialization")

    def dump(self, payload: P | Mapping[str, Any]) -> Json:
        """Return a payload as JSON with all defaults filled in.

        payload: a value of the type, or JSON for one. Raises InvalidInput (`invalid_payload`, with the JSON pointer of the first
        problem), `payload_too_large` and the errors of JSON. No message contains a part of the payload.
        """
        # "forbid" would hold for the types within the payload too, whatever they say themselves
        typed = self._validated(self._as_json(payload), extra=None if self._allows_extra else "forbid")
        return check_payload(self._as_json(typed))

    def load(self, payload: Json) -> P:
        """Return a recorded payload as the type. A key that this version does not have is ignored. Raises InvalidInput."""
        return self._validated(payload, extra=None)

    def payload_of(self, signal: Any) -> P:
        """Return the payload of a recorded signal, or of `ctx.signal`, as the type. Raises InvalidInput for another signal."""
        if signal.name != self.name:
            raise InvalidInput(
                f"{safe_repr(signal.name)} is not {self.name}: check the name of the signal first", code="wrong_signal"
            )
        payload: Any = signal.payload
        return payload if self._is_loaded(payload) else self.load(payload)

    def is_same(self, other: SignalDefinition[Any]) -> bool:
        """Return whether the other definition has the same name, description, version and schema."""
        return self is other or (
            (self.name, self.description, self.version) == (other.name, other.description, other.version)
            and self.schema == other.schema
        )

    def _is_loaded(self, payload: Any) -> bool:
        return isinstance(self.type, type) and not isinstance(payload, dict) and isinstance(payload, self.type)

    @cached_property
    def _allows_extra(self) -> bool:
        """Whether the type, or one within it, says itself what becomes of other keys."""
        return any(behavior != "forbid" for behavior in extra_behaviors(self._adapter.core_schema))

    def _as_json(self, payload: Any) -> Json:
        try:
            plain = self._adapter.dump_python(payload, by_alias=False, round_trip=True, warnings=False)
        except Exception:
            plain = payload  # not a value of the type; `to_json` reports what is not JSON
        try:
            return to_json(plain)
        except InvalidInput as error:  # its message may quote the payload
            raise self._invalid(
                masked(error.path or "", self._keys), f"it is not JSON ({error.code})", error.code
            ) from None

    def _validated(self, document: Json, *, extra: Any) -> P:
        try:
            text = pydantic_core.to_json(document)
            typed: P = self._adapter.validate_json(text, by_name=True, by_alias=True, extra=extra)
        except pydantic.ValidationError as error:
            path, problems = describe_problems(error, document, self._keys)
            raise self._invalid(path, problems) from None
        except RecursionError:
            raise self._invalid("", "it contains itself, or is nested too deeply", "json_too_deep") from None
        except Exception as error:  # of a validator of the author; its message may quote the payload
            raise self._invalid("", f"a validator raised {type(error).__name__}") from None
        return typed

    @cached_property
    def _keys(self) -> frozenset[str]:
        return keys_of(self.schema)

    def _invalid(self, path: str, problems: str, code: str = "invalid_payload") -> InvalidInput:
        message = (f"signal {self.name}: the payload does not match its definition at {self.place}: {problems}; "
                   "helio signal catalog prints its schema")  # fmt: skip
        return InvalidInput(message, code=code, path=pointer("/payload") + path)


def define_signal(name: str, payload: type[P], *, description: str = "", version: str = "1") -> SignalDefinition[P]:
    """Define a signal, once; `emits`, `activate_on`, `ctx.emit` and `on_signal` take the definition in place of its name.

    payload: a pydantic model, a dataclass, a TypedDict, or another type that pydantic can validate. description: for the catalog.
    version: chosen by the author. Raises InvalidInput (`wrong_type`, `lossy_payload`, and the errors of names), Rejected (`reserved_name`).
    """
    check_emit_name(name)
    for what, text in (("description", description), ("version", version)):
        if not isinstance(text, str) or len(text) > _TEXT_MAX:
            raise InvalidInput(f"signal {name}: {what} must be a text of at most {_TEXT_MAX} characters, not {safe_repr(repr_of(text))}",
                               code="wrong_type", path=f"/signals/{name}/{what}")  # fmt: skip
    caller = sys._getframe(1)
    place = f"{caller.f_globals.get('__name__', '?')}:{caller.f_lineno}"
    return SignalDefinition(name, payload, description, version, place)


def name_of(signal: str | SignalDefinition[Any]) -> str:
    """The name of a signal, or the pattern, that an author gave as text or as a definition."""
    return signal.name if isinstance(signal, SignalDefinition) else signal


def definitions_by_name(given: Iterable[SignalDefinition[Any]]) -> dict[str, SignalDefinition[Any]]:
    """The definitions by name. Raises SetupError (`conflicting_definitions`) for two of one name that differ."""
    found: dict[str, SignalDefinition[Any]] = {}
    for each in given:
        known = found.setdefault(each.name, each)
        if not known.is_same(each):
            raise SetupError(f"signal {each.name} has two definitions that differ, at {known.place} and at {each.place}; "
                             "keep one, and import it", code="conflicting_definitions")  # fmt: skip
    return found


def _adapter_of(name: str, payload: Any) -> pydantic.TypeAdapter[Any]:
    path = f"/signals/{name}/payload"
    try:
        adapter = pydantic.TypeAdapter(usable(payload))
        adapter.rebuild(raise_errors=True)
        adapter.json_schema(by_alias=False, mode="serialization")
    except (pydantic.errors.PydanticUserError, NameError, TypeError, RecursionError) as error:
        raise InvalidInput(f"signal {name}: {safe_repr(repr_of(payload))} cannot be the type of a payload: "
                           f"{str(error).partition(chr(10))[0]}; give a pydantic model, a dataclass or a TypedDict", code="wrong_type",
                           path=path) from None  # fmt: skip
    for field, why in losses(adapter.core_schema, "the payload"):
        raise InvalidInput(f"signal {name}: the payload cannot have {field}: {why}", code="lossy_payload",
                           path=f"{path}/{field}")  # fmt: skip
    return adapter
