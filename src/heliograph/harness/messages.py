"""A conversation as pydantic-ai has it: what is sent of it, what providers take back, and what the ledger can hold."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any, cast

from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.messages import (
    ModelRequest as ModelMessageRequest,
)
from pydantic_ai.tools import ToolDefinition

from heliograph.errors import InvalidInput
from heliograph.ports import AssistantMessage, ModelRequest, ToolCall, ToolMessage, UserMessage
from heliograph.signals.payload import check_json, cleaned
from heliograph.turn.untrusted import readable_text, system_of
from heliograph.types import Json, JsonObject

OUTPUT_TOOL = "final_result"
_RAW = "pydantic_ai"  # of an answer's `raw`: the messages of pydantic-ai, as JSON
_NAME_MAX = 64
_NAMELESS = re.compile("[^a-zA-Z0-9_-]")


def messages_of(request: ModelRequest, *, has_system: bool = True) -> list[ModelMessage]:
    """The conversation as pydantic-ai has it: neighbouring messages to the model are parts of one."""
    found: list[ModelMessage] = []
    system = system_of(request) if has_system else None
    parts: list[Any] = [SystemPromptPart(system)] if system else []
    for message in request.messages:
        match message:
            case UserMessage(content):
                parts.append(UserPromptPart(content))
            case ToolMessage(call_id, tool, _, is_error):
                # as text: pydantic-ai reads more into lists and objects, such as links to pictures to be fetched
                told = readable_text(message)
                parts.append(ToolReturnPart(_name(tool), told, call_id, outcome="failed" if is_error else "success"))
            case AssistantMessage():
                if parts:
                    found.append(ModelMessageRequest(parts=parts))
                found += _answered(message)
                parts = _rejected_call(found[-1])
    return [*found, ModelMessageRequest(parts=parts)] if parts else found


def _answered(message: AssistantMessage) -> list[ModelMessage]:
    """An answer as the provider gave it, where that is known: some want to see their thinking again, signed."""
    if isinstance(message.raw, dict) and _RAW in message.raw:
        return [sent(each) for each in ModelMessagesTypeAdapter.validate_python(message.raw[_RAW])]
    calls: list[Any] = list(message.tool_calls)  # with arguments that are an object, or the text that was none
    parts: list[Any] = [TextPart(message.text), *(ToolCallPart(call.tool, call.arguments, call.id) for call in calls)]
    return [sent(ModelResponse(parts=parts))]


def sent(message: Any) -> Any:
    """A message as providers take it back: they refuse blank texts and strange names, which models give all the same."""
    parts: list[Any] = []
    for part in message.parts:
        match part:
            case TextPart(content=content) if not content.strip():
                continue
            case ToolCallPart():
                parts.append(replace(part, tool_name=_name(part.tool_name), args=_arguments(part)))
            case ToolReturnPart():
                parts.append(replace(part, tool_name=_name(part.tool_name)))
            case _:
                parts.append(part)
    return replace(message, parts=parts)


def _name(tool: str) -> str:
    return _NAMELESS.sub("_", tool)[:_NAME_MAX] or "_"


def _arguments(part: ToolCallPart) -> Any:
    """What JSON has no room for, such as NaN, goes back as the text that it was."""
    try:
        check_json(part.args_as_dict(raise_if_invalid=True))
    except InvalidInput:
        return {"INVALID_JSON": part.args_as_json_str()}
    except (ValueError, AssertionError):
        pass  # no object, which pydantic-ai knows how to send
    return part.args


def _rejected_call(answer: ModelMessage) -> list[Any]:
    """The results of structured answers that came together with calls: the model has to give it again, after them."""
    calls = answer.parts if isinstance(answer, ModelResponse) else ()
    return [
        ToolReturnPart(part.tool_name, "Not taken: other calls were not answered yet. Give it again.", part.tool_call_id)
        for part in calls if isinstance(part, ToolCallPart) and part.tool_name == OUTPUT_TOOL
    ]  # fmt: skip


def raw_of(messages: list[ModelMessage]) -> JsonObject:
    """Messages as an AssistantMessage carries them, for a harness of pydantic-ai alone."""
    every: list[Any] = list(messages)
    held = [replace(message, parts=[_storable(part) for part in message.parts]) for message in every]
    return {_RAW: ModelMessagesTypeAdapter.dump_python(held, mode="json")}


def _storable(part: Any) -> Any:
    """A part as the ledger can hold it."""
    match part:
        case TextPart(content=str(content)) | ThinkingPart(content=str(content)):
            return replace(part, content=cleaned(content))
        case ToolCallPart(tool_name=tool, args=str(text)):
            return replace(part, tool_name=cleaned(tool), args=cleaned(text))
        case ToolCallPart(tool_name=tool):
            call = call_of(part)
            return replace(part, tool_name=cleaned(tool), args=cast("dict[str, Any] | str", call.arguments))
    return part


def definitions(request: ModelRequest) -> list[ToolDefinition]:
    return [
        ToolDefinition(name=t.name, description=t.description, parameters_json_schema=t.parameters)
        for t in request.tools
    ]


def withdrawn(request: ModelRequest) -> list[ToolDefinition]:
    """Declare tools that are no longer offered: some providers reject results of tools that a request does not declare."""
    return [
        ToolDefinition(
            name=_name(name), description="Not available any more.", parameters_json_schema={"type": "object"}
        )
        for name in request.withdrawn
    ]


def call_of(part: ToolCallPart) -> ToolCall:
    """Its arguments are an object, or the text that is none: whoever carries the call out tells the model so."""
    given = replace(part, args=cleaned(part.args)) if isinstance(part.args, str) else part
    arguments: Json
    try:
        arguments = check_json(given.args_as_dict(raise_if_invalid=True))
    except (ValueError, AssertionError, InvalidInput):
        arguments = given.args if isinstance(given.args, str) else cleaned(json.dumps(given.args))
    return ToolCall(part.tool_call_id, part.tool_name, arguments)
