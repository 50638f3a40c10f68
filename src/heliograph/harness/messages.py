"""Convert conversations between Heliograph and pydantic-ai, in forms that providers accept and the ledger can store."""

from __future__ import annotations

import json
import mimetypes
import re
from dataclasses import replace
from typing import Any, cast
from urllib.parse import urlsplit

from pydantic_ai.messages import (
    DocumentUrl,
    ImageUrl,
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
from heliograph.ports import AssistantMessage, FileReference, ModelRequest, ToolCall, ToolMessage, UserMessage
from heliograph.signals.payload import check_json, cleaned
from heliograph.turn.untrusted import readable_text, system_of
from heliograph.types import Json, JsonObject

OUTPUT_TOOL = "final_result"
_RAW = "pydantic_ai"  # the key of `raw` with the messages of pydantic-ai, as JSON
_NAME_MAX = 64
_NOT_IN_NAMES = re.compile("[^a-zA-Z0-9_-]")


def messages_of(request: ModelRequest, *, has_system: bool = True) -> list[ModelMessage]:
    """Convert the conversation of a request to messages of pydantic-ai; consecutive messages to the model become parts of one.

    has_system: whether the messages begin with the system prompt.
    """
    messages: list[ModelMessage] = []
    system = system_of(request) if has_system else None
    parts: list[Any] = [SystemPromptPart(system)] if system else []
    for message in request.messages:
        match message:
            case UserMessage(content, files):
                parts.append(UserPromptPart([content, *map(_file, files)] if files else content))
            case ToolMessage(call_id, tool, _, is_error):
                # as text: pydantic-ai interprets lists and objects, for example as links to images that it fetches
                text = readable_text(message)
                parts.append(ToolReturnPart(_name(tool), text, call_id, outcome="failed" if is_error else "success"))
            case AssistantMessage():
                if parts:
                    messages.append(ModelMessageRequest(parts=parts))
                messages += _responses(message)
                parts = _rejected_outputs(messages[-1])
    return [*messages, ModelMessageRequest(parts=parts)] if parts else messages


def _file(file: FileReference) -> ImageUrl | DocumentUrl:
    """Return a file as a reference: the provider reads it from its URL."""
    kind = file.media_type or mimetypes.guess_type(urlsplit(file.url).path)[0] or "application/octet-stream"
    if kind.startswith("image/"):
        return ImageUrl(file.url, media_type=kind)
    return DocumentUrl(file.url, media_type=kind)


def _responses(message: AssistantMessage) -> list[ModelMessage]:
    """Return a reply as the provider sent it, if it was recorded: some providers require their signed thinking."""
    if isinstance(message.raw, dict) and _RAW in message.raw:
        return [sendable(each) for each in ModelMessagesTypeAdapter.validate_python(message.raw[_RAW])]
    calls: list[Any] = list(message.tool_calls)  # the arguments are an object, or text that is not a JSON object
    parts: list[Any] = [TextPart(message.text), *(ToolCallPart(call.tool, call.arguments, call.id) for call in calls)]
    return [sendable(ModelResponse(parts=parts))]


def sendable(message: Any) -> Any:
    """Return a message in a form that providers accept: without the blank texts and unusual tool names that models produce."""
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
    return _NOT_IN_NAMES.sub("_", tool)[:_NAME_MAX] or "_"


def _arguments(part: ToolCallPart) -> Any:
    """Return the arguments of a call. Those that are not valid JSON, because of a NaN for example, are wrapped as text."""
    try:
        check_json(part.args_as_dict(raise_if_invalid=True))
    except InvalidInput:
        return {"INVALID_JSON": part.args_as_json_str()}
    except (ValueError, AssertionError):
        pass  # pydantic-ai itself handles arguments that are not an object
    return part.args


def _rejected_outputs(response: ModelMessage) -> list[Any]:
    """Reject structured output that came together with tool calls: the model has to give it again after their results."""
    calls = response.parts if isinstance(response, ModelResponse) else ()
    return [
        ToolReturnPart(part.tool_name, "Not accepted: other calls had no result yet. Give it again.", part.tool_call_id)
        for part in calls if isinstance(part, ToolCallPart) and part.tool_name == OUTPUT_TOOL
    ]  # fmt: skip


def raw_of(messages: list[ModelMessage]) -> JsonObject:
    """Return messages as JSON for `AssistantMessage.raw`, which only a harness of pydantic-ai reads."""
    originals: list[Any] = list(messages)
    storable = [replace(message, parts=[_storable(part) for part in message.parts]) for message in originals]
    return {_RAW: ModelMessagesTypeAdapter.dump_python(storable, mode="json")}


def _storable(part: Any) -> Any:
    """Replace the values in a part that the ledger cannot store."""
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
    """Convert the tools of a request to definitions of pydantic-ai."""
    return [
        ToolDefinition(name=t.name, description=t.description, parameters_json_schema=t.parameters)
        for t in request.tools
    ]


def withdrawn(request: ModelRequest) -> list[ToolDefinition]:
    """Declare tools that are no longer offered: some providers reject results of tools that a request does not declare."""
    return [
        ToolDefinition(name=_name(name), description="No longer available.", parameters_json_schema={"type": "object"})
        for name in request.withdrawn
    ]


def call_of(part: ToolCallPart) -> ToolCall:
    """Convert a call. Arguments that are not a JSON object remain text; the agent loop then reports the problem to the model."""
    part = replace(part, args=cleaned(part.args)) if isinstance(part.args, str) else part
    arguments: Json
    try:
        arguments = check_json(part.args_as_dict(raise_if_invalid=True))
    except (ValueError, AssertionError, InvalidInput):
        arguments = part.args if isinstance(part.args, str) else cleaned(json.dumps(part.args))
    return ToolCall(part.tool_call_id, part.tool_name, arguments)
