"""Request structured output from a model as the arguments of a tool call, and validate it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pydantic
from pydantic_ai.messages import (
    ModelRequest as ModelMessageRequest,
)
from pydantic_ai.messages import (
    ModelResponse,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.tools import ToolDefinition

from heliograph.error_text import safe_repr
from heliograph.errors import HarnessError
from heliograph.harness.messages import OUTPUT_TOOL
from heliograph.signals.payload import check_json
from heliograph.types import Json

_WRAPPED = "response"  # the only argument of an output that is not an object
_PROBLEM_CHARACTERS_MAX = 2000


class OutputMismatch(HarnessError):
    """A response whose structured output is missing or invalid. `feedback` is the message that explains it to the model."""

    def __init__(self, message: str, feedback: Sequence[ToolReturnPart | UserPromptPart]):
        super().__init__(message, recoverable=True)
        self.feedback = ModelMessageRequest(parts=feedback)


def output_tool(kind: Any) -> ToolDefinition:
    """Declare the tool whose arguments are the output: the JSON Schema of `kind`, inside an object unless it describes one."""
    schema = pydantic.TypeAdapter(kind).json_schema()
    if schema.get("type") != "object":
        definitions = {"$defs": schema.pop("$defs")} if "$defs" in schema else {}
        schema = {"type": "object", "properties": {_WRAPPED: schema}, "required": [_WRAPPED], **definitions}
    return ToolDefinition(name=OUTPUT_TOOL, description="Give the answer in this form.", parameters_json_schema=schema)


def validated_output(response: ModelResponse, kind: Any) -> Json:
    """Return the structured output of a response as JSON. Raises OutputMismatch."""
    name = getattr(kind, "__name__", kind)
    calls = [part for part in response.parts if isinstance(part, ToolCallPart) and part.tool_name == OUTPUT_TOOL]
    if not calls:
        request = UserPromptPart(f"Give the answer by calling {OUTPUT_TOOL}, and not as text.")
        raise OutputMismatch("the model replied with text instead of structured output", [request])
    adapter: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(kind)
    try:
        value: Any = calls[0].args_as_dict()
        if _WRAPPED in value and adapter.json_schema().get("type") != "object":
            value = value[_WRAPPED]
        return check_json(adapter.dump_python(adapter.validate_python(value), mode="json"))
    except Exception as error:  # a validator may raise anything
        problem = safe_repr(str(error), _PROBLEM_CHARACTERS_MAX)
        feedback = f"The answer is invalid: {problem}\nGive it again."
        parts = [ToolReturnPart(OUTPUT_TOOL, feedback, part.tool_call_id, outcome="failed") for part in calls]
        raise OutputMismatch(f"the model's output is not a valid {name}: {problem}", parts) from error
