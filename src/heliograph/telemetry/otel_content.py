"""The contents of model calls and tool calls as attributes, if the operator asks for them: without known secrets, and bounded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from heliograph.ports import AssistantMessage, Message, ModelReply, ModelRequest, ToolMessage, UserMessage
from heliograph.redaction import redacted
from heliograph.telemetry import semantics as s

_TEXT_MAX = 8_000  # of one attribute


def of_request(request: ModelRequest) -> dict[str, str]:
    found = {s.INPUT_MESSAGES: _newest([_message(each) for each in request.messages])}
    if request.system is not None:
        found[s.SYSTEM_INSTRUCTIONS] = _text([{"type": "text", "content": request.system}])
    return found


def of_reply(reply: ModelReply) -> dict[str, str]:
    message = AssistantMessage(reply.text, reply.tool_calls)
    return {s.OUTPUT_MESSAGES: _text([{**_message(message), "finish_reason": finish_reason(reply)}])}


def of_value(value: object) -> str:
    return _text(value)


def finish_reason(reply: ModelReply) -> str:
    return "length" if reply.is_cut else "tool_call" if reply.tool_calls else "stop"


def _message(message: Message) -> dict[str, Any]:
    match message:
        case UserMessage(content):
            return {"role": "user", "parts": [{"type": "text", "content": content}]}
        case AssistantMessage(text, tool_calls):
            calls = [
                {"type": "tool_call", "id": each.id, "name": each.tool, "arguments": each.arguments}
                for each in tool_calls
            ]
            return {"role": "assistant", "parts": [*([{"type": "text", "content": text}] if text else []), *calls]}
        case ToolMessage():
            part = {"type": "tool_call_response", "id": message.tool_call_id, "response": message.content}
            return {"role": "tool", "parts": [part]}


def _newest(messages: Sequence[dict[str, Any]]) -> str:
    """The messages as JSON, without the oldest ones if there is no room for them."""
    found: list[str] = []
    length = 2
    for message in reversed(messages):
        text = _text(message)
        length += len(text) + 1
        if found and length > _TEXT_MAX:
            break
        found.append(text)
    return f"[{','.join(reversed(found))}]"


def _text(value: object) -> str:
    """A value as JSON. Of a value without room, the texts in it lose their middle, so that it remains JSON."""
    try:
        clean, text = redacted(value), ""
        for text_max in (_TEXT_MAX, 4_000, 1_000, 250, 50):
            text = msgspec.json.encode(_shortened(clean, text_max)).decode()
            if len(text) <= _TEXT_MAX:
                return text
        return msgspec.json.encode(f"{text[: _TEXT_MAX // 4]}…").decode()[:_TEXT_MAX]
    except (TypeError, ValueError, RecursionError):  # no reason to fail the turn
        return "null"


def _shortened(value: Any, text_max: int) -> Any:
    match value:
        case str() if len(value) > text_max:
            return f"{value[: text_max // 2]}…{value[-text_max // 2 :]}"
        case dict():
            return {_shortened(key, text_max): _shortened(each, text_max) for key, each in value.items()}
        case list() | tuple():
            return [_shortened(each, text_max) for each in value]
    return value
