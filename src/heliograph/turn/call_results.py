"""Validate the result of a call against its declared schema. Pure.

The ledger keeps the reported result. The caller gets a failure with the code `result_schema` on every run, like any other
error of a tool.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from heliograph.codes import DELEGATION_ERROR, DELEGATION_TIMEOUT, RESULT_SCHEMA
from heliograph.control.partial_results import without_outcome
from heliograph.definitions.forms import problems_in, schema_of, validator_of
from heliograph.error_text import safe_repr
from heliograph.errors import ToolFailed
from heliograph.records import Wait
from heliograph.turn.calls import GATEWAY, CallRequest, CallResult, OutputValidator, result_of
from heliograph.types import Json, JsonObject

_MESSAGE_MAX = 2000


def output_validator(tool: str, result_schema: Any, path: str) -> OutputValidator | None:
    """A function that lists the problems of a result of `tool`. Raises InvalidInput for an invalid schema."""
    if result_schema is None:
        return None
    what = f"the result_schema of {tool}"
    validator = validator_of(what, schema_of(what, result_schema, path), path)
    return lambda output: problems_in(validator, output, "result")


def check_result(tool: str, output_problems: OutputValidator | None, output: Json) -> Json:
    """Return `output` if it is valid. Raises ToolFailed (`result_schema`)."""
    if output_problems is not None and (problems := output_problems(output)):
        raise ToolFailed(_message(tool, problems), code=RESULT_SCHEMA, tool=tool)
    return output


def validated_result(request: CallRequest, wait: Wait) -> CallResult:
    """The recorded result of a call, after validation against its schema."""
    result = result_of(wait)
    if wait.tool == GATEWAY and request.kind == "child":
        result = _delegated(result)
    if (
        result.status != "success"
        or request.output_problems is None
        or not (problems := request.output_problems(result.output))
    ):
        return result
    error: JsonObject = {"code": RESULT_SCHEMA, "message": _message(request.tool, problems), "recoverable": False}
    return CallResult(result.call_id, "failed", None, error)


def code_of_delegation(error: Mapping[str, Json]) -> str:
    """The code of a delegation that did not succeed: that of its own timeout or rejection, otherwise DELEGATION_ERROR.

    The code of the child's turn stands only in the details, because the child may have failed at a timeout or rejection of its own call.
    """
    code = error.get("code")
    is_late = code == DELEGATION_TIMEOUT and error.get("child_turn_id") is None
    return str(code) if is_late or any(key in error for key in ("circuit", "rate", "budget")) else DELEGATION_ERROR


def _delegated(result: CallResult) -> CallResult:
    """The result of a delegation, from that of the call that has sent it through a gateway."""
    if result.status == "timeout":
        return replace(result, error={**(result.error or {}), "code": DELEGATION_TIMEOUT})
    if result.status != "success":
        return result
    output, is_partial = without_outcome(result.output)
    return replace(result, output=output, status="partial" if is_partial else "success")


def _message(tool: str, problems: Sequence[str]) -> str:
    return safe_repr(f"the result of {tool} does not match its schema: {'; '.join(problems)}", _MESSAGE_MAX)
