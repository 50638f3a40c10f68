"""Ids of calls, as any provider takes them: each once in a conversation, and of plain characters.

Some providers count anew in each answer (`call_0`), or write ids such as `functions.add:0`. Others refuse a conversation in
which an id comes twice or looks like that, and would refuse it for ever.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart

_PLAIN = re.compile("[a-zA-Z0-9_-]{1,40}")  # OpenAI takes 40 characters, Anthropic these ones
_STRANGE = re.compile("[^a-zA-Z0-9_-]")
_KEPT_MAX = 30


def with_unique_ids(messages: list[ModelMessage], provider: str | None) -> list[ModelMessage]:
    """`messages`, with another id for each call whose own `provider` may refuse, and for what answers it.

    What `provider` wrote itself stays as it is where it comes once: its model may know its ids. The same messages get the
    same ids, also when more have come after them.
    """
    taken: set[str] = set()
    waiting: dict[tuple[str, str], list[str]] = {}  # the new ids of calls without an answer yet
    found: list[Any] = []
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
                waiting.setdefault((part.tool_name, part.tool_call_id), []).append(renamed.tool_call_id)
            elif own is not None and (ids := waiting.get((getattr(part, "tool_name", ""), own))):
                renamed = replace(part, tool_call_id=ids.pop(0))
            parts.append(renamed)
        found.append(replace(message, parts=parts))
    return found


def _id_of(own: str, taken: set[str], *, is_own: bool) -> str:
    """`own`, or one like it that is plain and not taken."""
    if own not in taken and (is_own or _PLAIN.fullmatch(own)):
        return own
    kept = _STRANGE.sub("_", own)[:_KEPT_MAX]
    n = 1
    while (made := f"{kept}_{n}") in taken:
        n += 1
    return made
