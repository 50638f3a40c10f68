"""The payloads of the six control signals and of their two responses, with the fields of the specification."""

from __future__ import annotations

from typing import Any, Literal, Self, TypeAlias

import pydantic

from heliograph.codes import HaltReason
from heliograph.control.field_types import (
    Flag,
    JsonValue,
    Milliseconds,
    Natural,
    Object,
    RedactedObject,
    RedactedText,
    Text,
    Texts,
    Time,
    read_texts,
)
from heliograph.control.model_errors import problem
from heliograph.control.wire_model import WireModel
from heliograph.types import JsonObject

Priority: TypeAlias = Literal["low", "normal", "high", "critical"]
DelegationStatus: TypeAlias = Literal["accepted", "in_progress", "completed", "failed"]
HealthStatus: TypeAlias = Literal["healthy", "degraded", "unhealthy"]
HeartbeatPhase: TypeAlias = Literal["init", "plan", "act", "reflect", "terminate", "idle"]


class Payload(WireModel):
    """A payload. `payload["task"]` reads a field by its key on the wire, as the specification's samples do."""

    def __getitem__(self, key: str) -> Any:
        return self.to_wire()[key]


class ToolCallPayload(Payload):
    """A request to call a tool.

    correlation_id: the response repeats it. parent_correlation_id: the id of the request that caused this one. depth: how many
    delegations led to the sender's turn.
    """

    described = "the payload of a tool_call"
    tool_name: Text
    parameters: Object
    correlation_id: Text | None = None
    parent_correlation_id: Text | None = None
    depth: Natural | None = None


class DelegationPayload(Payload):
    """A request to execute a task.

    target_agent: an agent's id or name. callback: the URL that receives the results. Correlation ids and depth: as of a tool call.
    """

    described = "the payload of a delegation"
    target_agent: Text
    task: Object
    context: Object | None = None
    callback: Text | None = None
    priority: Priority | None = None
    correlation_id: Text | None = None
    parent_correlation_id: Text | None = None
    depth: Natural | None = None


class HaltPayload(Payload):
    """A request to stop a turn or a run.

    graceful: whether the agent's cleanup runs. message: free text for people.
    correlation_id: the id of the request to halt. If it is set, the destination of the envelope is the agent or tool of this request.
    """

    described = "the payload of a halt"
    reason: HaltReason
    graceful: Flag = True
    message: Text | None = None
    correlation_id: Text | None = None


class Failure(WireModel):
    """Why a call or an agent failed. Known secrets in it are replaced by stars. recoverable: whether a retry may help."""

    described = "the error"
    code: Text
    message: RedactedText
    recoverable: Flag
    details: RedactedObject | None = None


class ErrorPayload(Failure, Payload):
    """The failure of an `error` signal, which spells the code `error_code` on the wire."""

    described = "the payload of an error"
    code: Text = pydantic.Field(validation_alias="error_code", serialization_alias="error_code")
    stack_trace: RedactedText | None = None


class ReadyPayload(Payload):
    """The capabilities of an agent that is ready."""

    described = "the payload of a ready"
    capabilities: Texts
    version: Text
    metadata: Object | None = None


class HeartbeatPayload(Payload):
    """The health of an agent. Warnings may stand in `metrics` on the wire; they are moved beside it.

    phase: the lifecycle phase; `idle` without a turn.
    """

    described = "the payload of a heartbeat"
    timestamp: Time
    phase: HeartbeatPhase
    status: HealthStatus | None = None
    metrics: Object | None = None
    warnings: Texts | None = None

    @pydantic.model_validator(mode="before")
    @classmethod
    def _move_warnings(cls, fields: Any) -> Any:
        metrics = fields.get("metrics") if isinstance(fields, dict) else None
        if not isinstance(metrics, dict) or "warnings" not in metrics:
            return fields
        try:
            inside, beside = read_texts(metrics["warnings"]), read_texts(fields.get("warnings") or ())
        except Exception as error:
            raise problem(
                "wrong_type", f"has warnings that are no list of strings: {error}", "/metrics/warnings"
            ) from None
        rest = {key: value for key, value in metrics.items() if key != "warnings"}
        return {**fields, "metrics": rest, "warnings": tuple(dict.fromkeys((*beside, *inside)))}


class ToolCallResponsePayload(Payload):
    """The end of a tool call: `result` after a success, otherwise `error`. details: extensions of Heliograph."""

    described = "the payload of a tool_call_response"
    tool_name: Text
    success: Flag
    result: JsonValue = None
    error: Failure | None = None
    duration_ms: Milliseconds | None = None
    correlation_id: Text | None = None
    details: Object | None = None

    @pydantic.model_validator(mode="after")
    def _check_end(self) -> Self:
        wanted, other = ("result", "error") if self.success else ("error", "result")
        if wanted not in self.model_fields_set or (wanted == "error" and self.error is None):
            raise problem(
                "required_field",
                f"has no '{wanted}'; add it, because success is {str(self.success).lower()}",
                f"/{wanted}",
            )
        if getattr(self, other) is not None:
            raise problem(
                "unknown_field",
                f"has '{other}'; remove it, because success is {str(self.success).lower()}",
                f"/{other}",
            )
        return self

    def to_wire(self) -> JsonObject:
        return {**super().to_wire(), "result": self.result} if self.success else super().to_wire()


class DelegationResponsePayload(Payload):
    """The status of a delegation. task_id: the turn that runs the task. details: for example the `reason` of a failure."""

    described = "the payload of a delegation_response"
    target_agent: Text
    status: DelegationStatus
    result: JsonValue = None
    error: Failure | None = None
    duration_ms: Milliseconds | None = None
    task_id: Text | None = None
    correlation_id: Text | None = None
    details: Object | None = None
