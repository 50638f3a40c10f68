"""The six control signals and their two responses, in the specification's wire form.

{"type": "tool_call", "async": true, "timeout_seconds": 60, "payload": {"tool_name": "search", "parameters": {}}}
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import pydantic

from heliograph.control.field_types import Flag, Positive, Time
from heliograph.control.model_errors import nearest
from heliograph.control.payloads import (
    DelegationPayload,
    DelegationResponsePayload,
    ErrorPayload,
    HaltPayload,
    HeartbeatPayload,
    Payload,
    ReadyPayload,
    ToolCallPayload,
    ToolCallResponsePayload,
)
from heliograph.control.wire_model import WireModel, as_object, read_model
from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput
from heliograph.json_pointer import pointer
from heliograph.types import JsonObject

# The signals with which agents report the ends of their phases: no control signals.
LIFECYCLE_TYPES = ("plan_ready", "action_complete", "reflection_complete", "terminated")


class WireSignal(WireModel):
    """A control signal or a response. timestamp: when it was sent; on the wire, its envelope has the time."""

    type: str
    payload: Payload
    timestamp: Time | None = None

    def to_wire(self) -> JsonObject:
        """Convert the signal to JSON, with the payload last."""
        wire = super().to_wire()
        return {**{key: value for key, value in wire.items() if key != "payload"}, "payload": wire["payload"]}


class ControlSignal(WireSignal):
    """One of the six control signals. async_: whether the sender continues without the response. timeout_seconds: None for no limit."""

    async_: Flag = pydantic.Field(default=False, validation_alias="async", serialization_alias="async")
    timeout_seconds: Positive | None = None


class ToolCallSignal(ControlSignal):
    """Call a tool. The response is a `tool_call_response`."""

    described = "a tool_call"
    type: Literal["tool_call"] = "tool_call"
    async_: Flag = pydantic.Field(default=True, validation_alias="async", serialization_alias="async")
    timeout_seconds: Positive | None = 60
    payload: ToolCallPayload


class DelegationSignal(ControlSignal):
    """Delegate a task to an agent. The response is a `delegation_response`."""

    described = "a delegation"
    type: Literal["delegation"] = "delegation"
    async_: Flag = pydantic.Field(default=True, validation_alias="async", serialization_alias="async")
    timeout_seconds: Positive | None = 300
    payload: DelegationPayload


class HaltSignal(ControlSignal):
    """Stop an agent.

    timeout_seconds: the time for the acknowledgement. force_after_seconds: the time after which a graceful halt ends the turn anyway;
    None leaves it to the receiver.
    """

    described = "a halt"
    type: Literal["halt"] = "halt"
    timeout_seconds: Positive | None = 5
    force_after_seconds: Positive | None = None
    payload: HaltPayload


class ErrorSignal(ControlSignal):
    """Report an error of an agent."""

    described = "an error"
    type: Literal["error"] = "error"
    payload: ErrorPayload


class ReadySignal(ControlSignal):
    """Report that an agent is ready for work."""

    described = "a ready"
    type: Literal["ready"] = "ready"
    payload: ReadyPayload


class HeartbeatSignal(ControlSignal):
    """Report that an agent is alive. interval_seconds: the time until the next one."""

    described = "a heartbeat"
    type: Literal["heartbeat"] = "heartbeat"
    interval_seconds: Positive = 30
    payload: HeartbeatPayload


class ToolCallResponse(WireSignal):
    """The end of a tool call."""

    described = "a tool_call_response"
    type: Literal["tool_call_response"] = "tool_call_response"
    payload: ToolCallResponsePayload


class DelegationResponse(WireSignal):
    """The status of a delegation; there may be several."""

    described = "a delegation_response"
    type: Literal["delegation_response"] = "delegation_response"
    payload: DelegationResponsePayload


CONTROL_SIGNALS: dict[str, type[ControlSignal]] = {
    "tool_call": ToolCallSignal,
    "delegation": DelegationSignal,
    "halt": HaltSignal,
    "error": ErrorSignal,
    "ready": ReadySignal,
    "heartbeat": HeartbeatSignal,
}
RESPONSES: dict[str, type[WireSignal]] = {
    "tool_call_response": ToolCallResponse,
    "delegation_response": DelegationResponse,
}
TYPES: dict[str, type[WireSignal]] = {**CONTROL_SIGNALS, **RESPONSES}


def read_signal(wire: Any, path: str = "") -> WireSignal:
    """Read a control signal or a response from parsed JSON or YAML. Missing optional fields get their defaults.

    path: the JSON pointer of `wire`, with which the paths of errors begin.
    Raises InvalidInput: unknown_signal_type, required_field, wrong_type, unknown_field, invalid_enum, out_of_range,
    invalid_timestamp, and the errors of `check_json`.
    """
    fields = as_object(wire, "a control signal", path)
    if "type" not in fields:
        raise InvalidInput(f"a control signal has no 'type'; the types are {', '.join(TYPES)}", code="required_field",
                           path=pointer(path, "type"))  # fmt: skip
    return read_model(type_named(fields["type"], pointer(path, "type")), fields, path)


def type_named(name: Any, path: str) -> type[WireSignal]:
    """Return the model of a type, with responses. Raises InvalidInput (`unknown_signal_type`) with the nearest name."""
    found = TYPES.get(name) if isinstance(name, str) else None
    if found is None:
        raise _unknown_type(name, path, TYPES)
    return found


def payload_type(model: type[WireSignal]) -> type[Payload]:
    """Return the model of a type's payload."""
    annotation: Any = model.model_fields["payload"].annotation
    return annotation  # type: ignore[no-any-return]  # pydantic does not declare its type


def control_type(name: Any, path: str) -> type[ControlSignal]:
    """Return the model of one of the six types. Raises InvalidInput (`unknown_signal_type`) with the nearest name."""
    found = CONTROL_SIGNALS.get(name) if isinstance(name, str) else None
    if found is None:
        raise _unknown_type(name, path, CONTROL_SIGNALS)
    return found


def _unknown_type(name: Any, path: str, known: Iterable[str]) -> InvalidInput:
    is_of_lifecycle = isinstance(name, str) and name in LIFECYCLE_TYPES
    reason = "is a signal of the lifecycle" if is_of_lifecycle else "is no control signal"
    return InvalidInput(f"{safe_repr(name)} {reason}; the type must be one of {', '.join(known)}{nearest(name, known)}",
                        code="unknown_signal_type", path=path)  # fmt: skip
