"""Express the log of a run as control signals in envelopes.

The log keeps its own names: a `tool:call` is a `tool_call` on the wire, a `tool:result` is a `tool_call_response`. Signals that are
neither control signals nor responses, for example those of the lifecycle and of agents, have no envelope.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, get_args

from heliograph.codes import (
    CANCELED,
    DELEGATION_ERROR,
    DELEGATION_TIMEOUT,
    EXTERNAL_SIGNAL,
    IN_DOUBT,
    TOOL_ERROR,
    TOOL_TIMEOUT,
    UNDECODABLE,
    USER_INTERRUPT,
    HaltReason,
)
from heliograph.control.envelope import Envelope
from heliograph.control.partial_results import without_outcome
from heliograph.control.signals import TYPES, payload_type, read_signal
from heliograph.errors import InvalidInput, KernelRejected
from heliograph.ids import span_id_of, trace_id_of
from heliograph.signals.model import Signal
from heliograph.types import JsonObject

RUNTIME = "runtime"
LOG_NAMES = {
    "tool:call": "tool_call",
    "tool:result": "tool_call_response",
    "delegation": "delegation",
    "delegation_response": "delegation_response",
    "halt": "halt",
    "error": "error",
    "ready": "ready",
    "heartbeat": "heartbeat",
}
_DELEGATION_CODES = {"timeout": DELEGATION_TIMEOUT}
CODES_OF_STATUS = {"timeout": TOOL_TIMEOUT, "unknown": IN_DOUBT, "canceled": CANCELED}


@dataclass(frozen=True, slots=True)
class _Request:
    """A tool call or a delegation that the log has recorded."""

    correlation_id: str
    agent: str
    at: datetime
    target: str = ""
    kind: str = "tool_call"


class RunLog:
    """Converts the signals of one run, in the order of its log: a response refers to its request."""

    def __init__(self) -> None:
        self._requests: dict[str, _Request] = {}  # tool calls without a response yet, by correlation id
        self._delegations: dict[str, _Request] = {}  # by the turn that runs the task
        self._trace_id: str | None = None  # of the sender, if a gateway started the run

    def envelope_of(self, signal: Signal) -> Envelope | None:
        """Return a signal in its envelope; None if it is not a control signal. Raises KernelRejected for a malformed payload."""
        kind = LOG_NAMES.get(signal.name)
        if kind is None:
            return None
        try:
            return self._convert(kind, signal, dict(signal.payload))  # type: ignore[arg-type]  # reported below
        except (InvalidInput, TypeError, ValueError, KeyError) as error:
            raise KernelRejected(f"the payload of {signal.id} ({signal.name}) is malformed: {error}", code=UNDECODABLE,
                                 hint=f"helio signal tail --run {signal.run_id} shows it") from error  # fmt: skip

    def _convert(self, kind: str, signal: Signal, payload: JsonObject) -> Envelope:
        agent = signal.agent or RUNTIME
        span, source, destination, wire = signal.turn_id or signal.id, agent, RUNTIME, _common(kind, payload)
        received = as_object(payload.get("envelope"))  # of a request that a gateway received
        if kind in ("tool_call", "delegation"):
            span, destination, wire = self._request(kind, signal, payload)
            source = str(received.get("source", source))
            self._trace_id = received.get("trace_id", self._trace_id)  # type: ignore[assignment]  # checked by Envelope
        elif kind == "tool_call_response":
            span = _correlation_id(signal, payload)
            request = self._requests.pop(span, None)
            source, destination = str(payload["name"]) if request is None else request.target, agent
            wire = _tool_response({**payload, "name": source}, span, request, signal.timestamp)
            if request is not None and request.kind == "delegation":  # through a gateway
                kind, wire = "delegation_response", _sent_delegation_response(wire)
        elif kind == "delegation_response":
            request = self._delegations.get(str(payload["task_id"]))
            span = _correlation_id(signal, payload) if request is None else request.correlation_id
            source = str(payload["target_agent"])
            destination = request.agent if request is not None else RUNTIME if agent == source else agent
            wire = {"payload": {**delegation_response(payload), "correlation_id": span}}
        elif kind == "halt":
            source, destination = str(payload.get("actor") or RUNTIME), agent
            wire = {"payload": _halt(payload)}
        return Envelope(
            id=signal.id, timestamp=signal.timestamp, source=source, destination=destination,
            trace_id=self._trace_id or trace_id_of(signal.run_id), span_id=str(received.get("span_id") or span_id_of(span)),
            signal=read_signal({"type": kind, **wire}),
        )  # fmt: skip

    def _request(self, kind: str, signal: Signal, payload: JsonObject) -> tuple[str, str, JsonObject]:
        """Return the correlation id, the destination, and the parts of a request; remember it for its responses."""
        given = payload.get("correlation_id")
        request = _Request(str(given or _correlation_id(signal, payload)), signal.agent or RUNTIME, signal.timestamp,
                           str(payload["target_agent"] if kind == "delegation" else payload["name"]), kind)  # fmt: skip
        correlated: JsonObject = {"correlation_id": request.correlation_id, **_given(payload, "parent_correlation_id")}
        if (above := self._delegations.get(signal.turn_id or "")) is not None:
            correlated["parent_correlation_id"] = above.correlation_id
        timeout: JsonObject = {"timeout_seconds": payload.get("timeout_seconds")}
        if kind == "tool_call":
            self._requests[request.correlation_id] = request
            name = str(payload["name"])
            parts: JsonObject = {"tool_name": name, "parameters": as_object(payload.get("input"))}
            return request.correlation_id, name, {**timeout, "payload": {**parts, **correlated}}
        if "gateway" in payload:
            self._requests[request.correlation_id] = request
        if "task_id" in payload:
            self._delegations[str(payload["task_id"])] = request
        target = str(payload["target_agent"])
        parts = {"target_agent": target, "task": as_object(payload["task"]), **_given(payload, "context", "priority")}
        return request.correlation_id, target, {**timeout, "payload": {**parts, **correlated}}


def as_object(value: Any) -> JsonObject:
    """Return an input or a task as the object that the wire requires: nothing as `{}`, any other value as `{"value": …}`."""
    if isinstance(value, dict):
        return value
    return {} if value is None else {"value": value}


def _correlation_id(signal: Signal, payload: JsonObject) -> str:
    """The id of a call is unique within its turn."""
    return f"{signal.turn_id or signal.run_id}:{payload['id']}"


def _common(kind: str, payload: JsonObject) -> JsonObject:
    """The parts of a signal whose payload is the same in the log and on the wire; the log may have further keys."""
    fields = payload_type(TYPES[kind]).model_fields
    keys = [field.serialization_alias or name for name, field in fields.items()]
    return {**_given(payload, "interval_seconds"), "payload": _given(payload, *keys)}


def _tool_response(payload: JsonObject, correlation_id: str, request: _Request | None, at: datetime) -> JsonObject:
    response: JsonObject = {
        "tool_name": payload["name"],
        "correlation_id": correlation_id,
        "success": payload["status"] == "success",
    }
    if response["success"]:
        response["result"] = payload.get("output")
    else:
        status = str(payload["status"])
        response["error"] = failure_of(
            payload.get("error"), CODES_OF_STATUS.get(status, TOOL_ERROR), f"the call ended as {status}"
        )
    if request is not None:
        response["duration_ms"] = max(0, round((at - request.at).total_seconds() * 1000))
    if "card_id" in payload and not {"output", "error"} & set(payload):  # too large for the log
        response["details"] = _given(payload, "card_id")
    return {"payload": response}


def _sent_delegation_response(wire: JsonObject) -> JsonObject:
    """The response to a delegation that went through a gateway, from the result of the call that sent it."""
    given: Any = wire["payload"]
    response = {key: value for key, value in given.items() if key not in ("tool_name", "success")}
    if "error" in response and response["error"]["code"] == TOOL_TIMEOUT:
        response["error"] = {**response["error"], "code": DELEGATION_TIMEOUT}
    if given["success"]:
        response["result"], is_partial = without_outcome(given["result"])
        if is_partial:
            response["details"] = {**(given.get("details") or {}), "outcome": "partial"}
    return {
        "payload": {
            "target_agent": given["tool_name"],
            "status": "completed" if given["success"] else "failed",
            **response,
        }
    }


def delegation_response(payload: JsonObject) -> JsonObject:
    """Return the payload of the response to a delegation that the log records as `payload`."""
    response = _given(payload, "target_agent", "task_id", "status", "result", "duration_ms")
    outcome = payload.get("outcome")
    if payload["status"] == "failed":
        response["details"] = {"reason": outcome}
        response["error"] = failure_of(payload.get("error"), _DELEGATION_CODES.get(str(outcome), DELEGATION_ERROR),
                                     f"the turn ended as {outcome}")  # fmt: skip
    elif outcome == "partial":
        response["details"] = {"outcome": outcome}
    return response


def _halt(payload: JsonObject) -> JsonObject:
    """A reason in free text becomes the message. The reason is then user_interrupt if the log has an actor, otherwise external_signal.

    A gateway logs the reason of a halt with its message as `<reason>: <message>`.
    """
    reason = payload["reason"]
    halt = _given(payload, "graceful", "message")
    name, _, message = str(reason).partition(": ")
    if name in get_args(HaltReason):
        return {**({"message": message} if message else {}), **halt, "reason": name}
    return {"message": reason, **halt, "reason": USER_INTERRUPT if payload.get("actor") else EXTERNAL_SIGNAL}


def failure_of(error: Any, code: str, message: str) -> JsonObject:
    """The error of a call, with the keys of the wire. Further keys become its details."""
    given = error if isinstance(error, dict) else {}
    more = {key: value for key, value in given.items() if key not in ("code", "message", "recoverable", "details")}
    details = {**as_object(given.get("details")), **more}
    recoverable = given.get("recoverable")
    return {
        "code": given.get("code") or code, "message": given.get("message") or message,
        "recoverable": recoverable if isinstance(recoverable, bool) else code in (TOOL_TIMEOUT, DELEGATION_TIMEOUT),
        **({"details": details} if details else {}),
    }  # fmt: skip


def _given(payload: JsonObject, *keys: str) -> JsonObject:
    return {key: payload[key] for key in keys if payload.get(key) is not None}
