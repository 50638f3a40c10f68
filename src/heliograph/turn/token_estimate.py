"""What a question to a model can cost at most, before it is asked. Pure.

A tokenizer that falls back to bytes, as those in use do, makes no more tokens of a text than it has bytes in UTF-8. So the
bytes are an upper bound that needs no tokenizer; for English it is some four times what is used. What a provider adds,
such as the marks between messages and its own words about tools, is counted generously.
"""

from __future__ import annotations

from typing import Any

import msgspec

from heliograph.ports import AssistantMessage, Message, ModelRequest, ToolMessage, UserMessage
from heliograph.turn.untrusted import readable_text, system_of
from heliograph.types import Json

_PER_REQUEST = 16
_PER_MESSAGE = 16
_PER_TOOL = 32
_ANY_TOOLS = 600  # providers tell the model how to call tools, in words of their own


def input_tokens_max(request: ModelRequest) -> int:
    """As many tokens as the conversation, the system text, the tools and the form of the answer can be."""
    found = (
        _PER_REQUEST
        + _bytes(system_of(request) or "")
        + sum(_PER_MESSAGE + _message(each) for each in request.messages)
    )
    for tool in request.tools:
        found += _PER_TOOL + _bytes(tool.name) + _bytes(tool.description) + _bytes(tool.parameters)
    found += sum(2 * _PER_TOOL + _bytes(name) for name in request.withdrawn)
    if request.output is not None:
        found += _PER_TOOL + _bytes(_schema(request.output))
    return found + (_ANY_TOOLS if request.tools or request.withdrawn or request.output is not None else 0)


def _message(message: Message) -> int:
    match message:
        case UserMessage(content):
            return _bytes(content)
        case ToolMessage(call_id, tool):
            return _bytes(call_id) + _bytes(tool) + _bytes(readable_text(message))
        case AssistantMessage(text, calls, raw):
            said = _bytes(text) + sum(_bytes(c.id) + _bytes(c.tool) + _bytes(c.arguments) + _PER_TOOL for c in calls)
            return max(said, _bytes(raw))  # what the harness sends again may have more in it, such as its thinking


def _bytes(value: Json) -> int:
    return len(value.encode("utf-8", "surrogatepass") if isinstance(value, str) else msgspec.json.encode(value))


def _schema(kind: Any) -> Json:
    import pydantic  # slow to import, and only a structured answer needs it

    found: Json = pydantic.TypeAdapter(kind).json_schema()
    return found
