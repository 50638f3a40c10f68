"""The maximum of input tokens of a model call, before it is made. Pure.

Common tokenizers fall back to bytes, so a text has at most as many tokens as bytes in UTF-8. This upper bound needs no
tokenizer; for English it is about four times the real number. The additions of a provider, like marks between messages and
instructions about tools, are counted generously.
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
_PER_FILE = 4096  # an image; a document may have more
_ANY_TOOLS = 600  # instructions of the provider about tool calls


def input_tokens_max(request: ModelRequest) -> int:
    """The maximum of tokens of the conversation, the system prompt, the tools and the output schema."""
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
        case UserMessage(content, files):
            return _bytes(content) + sum(_PER_FILE + _bytes(each.url) for each in files)
        case ToolMessage(call_id, tool):
            return _bytes(call_id) + _bytes(tool) + _bytes(readable_text(message))
        case AssistantMessage(text, calls, raw):
            size = _bytes(text) + sum(_bytes(c.id) + _bytes(c.tool) + _bytes(c.arguments) + _PER_TOOL for c in calls)
            return max(size, _bytes(raw))  # the raw message may contain more, like thinking


def _bytes(value: Json) -> int:
    return len(value.encode("utf-8", "surrogatepass") if isinstance(value, str) else msgspec.json.encode(value))


def _schema(kind: Any) -> Json:
    import pydantic  # slow to import, and only a structured answer needs it

    found: Json = pydantic.TypeAdapter(kind).json_schema()
    return found
