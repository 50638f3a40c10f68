"""The route table: which queue or gateway takes a control signal.

The first route that matches decides. Without one, the table's `default` decides; without a default, the signal is not routed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

import pydantic

from heliograph.control.field_types import Flag, Object, Text, read_text
from heliograph.control.model_errors import nearest, problem
from heliograph.control.payloads import Priority
from heliograph.control.pool_names import POOL_RULE, is_pool_name
from heliograph.control.rates import RateLimit, read_rate
from heliograph.control.signals import TYPES, WireSignal, payload_type
from heliograph.control.wildcard import compile_wildcard
from heliograph.control.wire_model import WireModel, as_object, read_model
from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput
from heliograph.json_pointer import pointer
from heliograph.types import JsonObject

_TARGETS = ("target_agent", "tool_name")  # fields of payloads that a route can match


def _read_wildcard(value: Any) -> str:
    try:
        return compile_wildcard(read_text(value)).text
    except InvalidInput as error:
        raise problem(error.code, error.message) from None


def _read_type(value: Any) -> str:
    text = _read_wildcard(value)
    if not any(compile_wildcard(text).matches(name) for name in TYPES):
        raise problem("unknown_signal_type",
                      f"is {safe_repr(value)}, but must be or match one of {', '.join(TYPES)}{nearest(text, TYPES)}")  # fmt: skip
    return text


def _read_queue(value: Any) -> str:
    text = read_text(value)
    if not is_pool_name(text):
        raise problem("invalid_id", f"must be the name of one pool: {POOL_RULE}, not {safe_repr(value)}")
    return text


class Match(WireModel):
    """The conditions of a route, each a name or a wildcard (`security-*`). A signal must fulfil all of them."""

    described = "the match of a route"
    signal_type: Annotated[str, pydantic.PlainValidator(_read_type)] | None = None
    target_agent: Annotated[str, pydantic.PlainValidator(_read_wildcard)] | None = None
    tool_name: Annotated[str, pydantic.PlainValidator(_read_wildcard)] | None = None

    @pydantic.model_validator(mode="after")
    def _check_possible(self) -> Self:
        given = [key for key in ("signal_type", *_TARGETS) if getattr(self, key) is not None]
        if not given:
            raise problem(
                "required_field",
                f"has no condition; add one of signal_type, {', '.join(_TARGETS)}, or use the default of the table",
            )
        possible = [kind for name, kind in TYPES.items() if self._allows(name, kind)]
        if not possible:
            raise problem(
                "matches_nothing", f"matches no signal, because no type has all of {', '.join(given)}; remove one"
            )
        return self

    def _allows(self, name: str, kind: type[WireSignal]) -> bool:
        """Whether a signal of this type can match."""
        if self.signal_type is not None and not compile_wildcard(self.signal_type).matches(name):
            return False
        fields = payload_type(kind).model_fields
        return all(getattr(self, key) is None or key in fields for key in _TARGETS)

    def matches(self, signal: WireSignal) -> bool:
        """Whether a signal fulfils all conditions. A signal without the field of a condition does not."""
        return self.matches_values(
            {"signal_type": signal.type, **{key: getattr(signal.payload, key, None) for key in _TARGETS}}
        )

    def matches_values(self, values: Mapping[str, str | None]) -> bool:
        """Whether a signal with these values of signal_type, target_agent and tool_name fulfils all conditions."""
        return all(
            (text := getattr(self, key)) is None
            or ((value := values.get(key)) is not None and compile_wildcard(text).matches(value))
            for key in ("signal_type", *_TARGETS)
        )


class Destination(WireModel):
    """The destination of a route: a queue, which is a pool of workers, or a gateway, which is another system.

    priority: for signals without a priority of their own, or with `force`, for all. rate_limit: shared by all workers.
    """

    described = "the destination of a route"
    queue: Annotated[str, pydantic.PlainValidator(_read_queue)] | None = None
    gateway: Text | None = None
    priority: Priority | None = None
    force: Flag = False
    rate_limit: Annotated[RateLimit, pydantic.PlainValidator(read_rate)] | None = None

    @pydantic.model_validator(mode="after")
    def _check_one(self) -> Self:
        if (self.queue is None) == (self.gateway is None):
            have = "has neither 'queue' nor 'gateway'" if self.queue is None else "has 'queue' and 'gateway'"
            raise problem("queue_or_gateway", f"{have}; it must have exactly one of them")
        if self.force and self.priority is None:
            raise problem("required_field", "has 'force', but no 'priority' to force; add it", "/priority")
        return self

    def to_wire(self) -> JsonObject:
        return {key: value for key, value in super().to_wire().items() if (key, value) != ("force", False)}

    def choose_priority(self, own: Priority | None) -> Priority | None:
        """Return the priority with which a signal travels: its own if it has one, unless the route forces another."""
        return self.priority if self.force or own is None else own


class Route(WireModel):
    described = "a route"
    match: Match
    destination: Destination


class RouteTable(WireModel):
    """The routes of a deployment, in order. default: the destination of signals that no route matches."""

    described = "a route table"
    api_version: Literal["ossa/v0.4.9"] | None = pydantic.Field(
        default=None, validation_alias="apiVersion", serialization_alias="apiVersion"
    )
    kind: Literal["MessageRouting"] = "MessageRouting"
    metadata: Object | None = None
    routes: tuple[Route, ...]
    default: Destination | None = None

    def destination_of(self, signal: WireSignal) -> Destination | None:
        """Return the destination of a signal; None if no route matches it and there is no default."""
        return next((route.destination for route in self.routes if route.match.matches(signal)), self.default)

    def destination_of_call(
        self, signal_type: str, *, target_agent: str | None = None, tool_name: str | None = None
    ) -> Destination | None:
        """Return the destination of a call for which no signal object exists yet. See `destination_of`."""
        values = {"signal_type": signal_type, "target_agent": target_agent, "tool_name": tool_name}
        return next((route.destination for route in self.routes if route.match.matches_values(values)), self.default)

    @property
    def destinations(self) -> list[Destination]:
        """The destinations of all routes, in order, and the default."""
        return [*(route.destination for route in self.routes), *([] if self.default is None else [self.default])]


def read_routes(wire: Any, path: str = "") -> RouteTable:
    """Read a route table from parsed JSON or YAML.

    Raises InvalidInput: queue_or_gateway, invalid_rate, invalid_wildcard, matches_nothing, unknown_signal_type, and the errors
    of `read_signal`.
    """
    fields = as_object(wire, RouteTable.described, path)
    if "kind" not in fields:
        raise InvalidInput(
            "a route table has no 'kind'; add kind: MessageRouting", code="required_field", path=pointer(path, "kind")
        )
    return read_model(RouteTable, fields, path)
