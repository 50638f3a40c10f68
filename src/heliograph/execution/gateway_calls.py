"""Build the command of a call that a route sends to a gateway: the URL, and the request in its envelope."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from heliograph.codes import PARENT_TERMINATION
from heliograph.definitions.agent import PRIORITIES
from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput
from heliograph.execution.owned_turn import OwnedTurn
from heliograph.ids import span_id_of, trace_id_of
from heliograph.reactive.run_memory import RECEIVED_TRACE_ID
from heliograph.turn.calls import WIRE_NAME_BYTES_MAX, CallRequest, delegation_of
from heliograph.types import JsonObject

if TYPE_CHECKING:
    from heliograph.control.envelope import Envelope
    from heliograph.control.routing import Destination

POLL_SECONDS = 20.0  # how long one request waits for the end of its task


def gateway_pool(url: str) -> str:
    """Return the pool of the commands for a gateway. Workers take the commands of each pool separately."""
    return f"gateway-{sha256(url.encode()).hexdigest()[:32]}"


def gateway_command(owned: OwnedTurn, request: CallRequest, destination: Destination) -> JsonObject:
    """Return the body of the command for a worker that sends the call. Every attempt sends the same envelope."""
    from heliograph.control.envelope import Envelope  # slow to import, and most applications have no gateways
    from heliograph.control.expressions import uuid_from
    from heliograph.control.signals import read_signal

    claimed = owned.claimed
    correlation_id = f"{claimed.turn_id}:{request.call_id}"
    payload = _payload(request, destination) | {"correlation_id": correlation_id}
    if (task := delegation_of(claimed.cause)) is not None:  # another system has sent it, or else a turn of this run
        payload["parent_correlation_id"] = task.get("correlation_id") or f"{claimed.parent_turn_id}:{task['id']}"
    if claimed.depth > 0:
        payload["depth"] = claimed.depth
    kind = "delegation" if request.kind == "child" else "tool_call"
    # an agent of another project may have the same name, and a turn there the same id
    source = f"{owned.project}/{claimed.target}/{claimed.agent}"
    envelope = Envelope(
        id=uuid_from(f"{source}/{correlation_id}"), timestamp=owned.world.now(), source=source, destination=request.tool,
        trace_id=claimed.run.memory.get(RECEIVED_TRACE_ID) or trace_id_of(claimed.run_id),
        span_id=span_id_of(correlation_id),
        signal=read_signal({"type": kind, "async": False, "timeout_seconds": POLL_SECONDS, "payload": payload}),
    )  # fmt: skip
    return {
        "gateway": destination.gateway, "request": envelope.to_wire(), "arguments": _content(request),
        "halt": {"gateway": destination.gateway, "request": _halt_of(envelope, correlation_id, owned.workflow.grace_seconds).to_wire()},
    }  # fmt: skip


def _halt_of(request: Envelope, correlation_id: str, grace_seconds: float | None) -> Envelope:
    """Return the halt of a request's task. A worker sends it if the caller ends or continues without the result.

    grace_seconds: the time that the task has for its cleanup; None to force its end at once.
    """
    from heliograph.control.envelope import Envelope
    from heliograph.control.expressions import uuid_from
    from heliograph.control.signals import read_signal

    name = f"{correlation_id}:halt"
    payload: JsonObject = {
        "reason": PARENT_TERMINATION, "graceful": grace_seconds is not None, "message": "its caller no longer waits for it",
        "correlation_id": correlation_id,
    }  # fmt: skip
    signal: JsonObject = {"type": "halt", "payload": payload}
    if grace_seconds is not None:
        signal["force_after_seconds"] = grace_seconds
    return Envelope(
        id=uuid_from(f"{request.source}/{name}"), timestamp=request.timestamp, source=request.source, destination=request.destination,
        trace_id=request.trace_id, span_id=span_id_of(name), signal=read_signal(signal),
    )  # fmt: skip


def check_for_gateway(request: CallRequest) -> CallRequest:
    """Return a delegation to another system unchanged.

    Raises InvalidInput for an option that only a local turn can have, and for a name that no envelope can have (`invalid_id`).
    """
    size = len(request.tool.encode("utf-8", "surrogatepass"))
    if not (0 < size <= WIRE_NAME_BYTES_MAX and request.tool.isprintable()):
        raise InvalidInput(f"the name of an agent must be printable text of 1 to {WIRE_NAME_BYTES_MAX} bytes, not {safe_repr(request.tool)}",
                           code="invalid_id", path="/agent")  # fmt: skip
    options = {"context_box_id": request.context_box_id, "budget": request.budget, "instance": request.instance}
    for name, value in options.items():
        if value is not None:
            raise InvalidInput(f"the delegation to {request.tool} goes through a gateway, so it cannot have {name}; remove it",
                               code="unknown_field", path=f"/{name}")  # fmt: skip
    return request


def _payload(request: CallRequest, destination: Destination) -> JsonObject:
    if request.kind != "child":
        return {"tool_name": request.tool, "parameters": _content(request)}
    own = None if request.priority is None else PRIORITIES[request.priority]
    optional: JsonObject = {
        "context": request.context,
        "callback": request.callback_url,
        "priority": destination.choose_priority(own),
    }
    given = {key: value for key, value in optional.items() if value is not None}
    return {"target_agent": request.tool, "task": _content(request), **given}


def _content(request: CallRequest) -> JsonObject:
    """The task or the arguments as an object, as the wire and commands require."""
    if isinstance(request.input, dict):
        return request.input
    return {} if request.input is None else {"value": request.input}
