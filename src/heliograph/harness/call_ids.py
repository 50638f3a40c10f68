"""Give tool calls ids that every provider accepts: unique in the conversation, and of plain characters.

Some providers start counting again in each response (`call_0`), or use ids such as `functions.add:0`. Others reject a conversation
with repeated ids or with such characters, and would reject it at every retry.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart

_PLAIN = re.compile("[a-zA-Z0-9_-]{1,40}")  # OpenAI accepts 40 characters, Anthropic these characters
_NOT_PLAIN = re.compile("[^a-zA-Z0-9_-]")
_PREFIX_CHARACTERS_MAX = 30


def with_unique_ids(messages: list[ModelMessage], provider: str | None) -> list[ModelMessage]:
    """Return `messages` with a new id for each call, and for its result, whose id `provider` may reject.

    provider: its name in pydantic-ai; None if unknown. Its own ids are kept where they are unique, because its model may refer to
    them. The same messages always get the same ids, even when further messages follow.
    """
    taken: set[str] = set()
    unanswered: dict[tuple[str, str], list[str]] = {}  # the new ids of calls without a result yet
    renamed_messages: list[Any] = []
    message: Any
    for message in messages:
        is_own = isinstance(message, ModelResponse) and provider is not None and message.provider_name == provider
        parts: list[Any] = []
        for part in message.parts:
            renamed: Any = part
            own = getattr(part, "tool_call_id", None)
            if isinstance(part, ToolCallPart):
                renamed = replace(part, tool_call_id=_id_of(part.tool_call_id, taken, is_own=is_own))
                taken.add(renamed.tool_call_id)
                unanswered.setdefault((part.tool_name, part.tool_call_id), []).append(renamed.tool_call_id)
            elif own is not None and (ids := unanswered.get((getattr(part, "tool_name", ""), own))):
                renamed = replace(part, tool_call_id=ids.pop(0))
            parts.append(renamed)
        renamed_messages.append(replace(message, parts=parts))
    return renamed_messages


def _id_of(own: str, taken: set[str], *, is_own: bool) -> str:
    """Return `own`, or a similar id of plain characters that is not taken."""
    if own not in taken and (is_own or _PLAIN.fullmatch(own)):
        return own
    prefix = _NOT_PLAIN.sub("_", own)[:_PREFIX_CHARACTERS_MAX]
    n = 1
    while (identifier := f"{prefix}_{n}") in taken:
        n += 1
    return identifier
