"""The conversation of a turn with its model, rebuilt from records when the turn resumes. Pure.

A model reply is recorded before its tool calls start, and each tool call has a recorded result. The conversation is built
from these records, so it is the same on every worker, and every tool call has a message with its result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from heliograph.ports import AssistantMessage, Message, ModelReply, ToolCall, ToolMessage, UserMessage
from heliograph.records import Wait
from heliograph.turn.call_id import CallId
from heliograph.turn.calls import CallResult
from heliograph.turn.journal import Journal
from heliograph.types import Json, JsonObject


class Conversation:
    """The messages so far, oldest first, and the last text of the model. Updates the token count of the journal."""

    def __init__(self, given: Sequence[Message], journal: Journal):
        """given: the first messages: the boxes, the earlier messages of a session, then the prompt."""
        self._journal = journal
        self.messages: list[Message] = list(given)
        self._input_tokens, self._output_tokens = 0, 0  # of the replies so far
        self.last_text = ""

    def add_reply(self, reply: ModelReply) -> None:
        self._input_tokens += reply.input_tokens
        self._output_tokens += reply.output_tokens
        before = self._journal.tokens  # a resumed turn also counts recorded replies that it has not reached yet
        self._journal.tokens = max(before[0], self._input_tokens), max(before[1], self._output_tokens)
        self.last_text = reply.text or self.last_text
        if not is_empty(reply):  # providers refuse a message without content
            self.messages.append(AssistantMessage(reply.text, reply.tool_calls, reply.raw))

    def add_results(self, calls: Sequence[ToolCall], results: Mapping[int, ToolMessage]) -> None:
        """One message for each call, in their order; `results` by place."""
        self.messages += [results[n] for n in range(len(calls))]

    def add_reminder(self, text: str) -> None:
        self.messages.append(UserMessage(text))


def is_empty(reply: ModelReply) -> bool:
    """Whether the reply has no text, no output and no tool call."""
    return not (reply.text.strip() or reply.tool_calls or reply.output is not None)


def record_of(reply: ModelReply, deferrals: int = 0, marks: Mapping[str, str] = {}) -> JsonObject:
    """The record of a reply. deferrals: those of its turn before the reply. marks: of its request, see `marks_of`."""
    calls: list[Json] = [{"id": c.id, "tool": c.tool, "arguments": c.arguments} for c in reply.tool_calls]
    return {
        "text": reply.text, "thinking": reply.thinking, "tool_calls": calls, "raw": reply.raw, "output": reply.output,
        "input_tokens": reply.input_tokens, "output_tokens": reply.output_tokens, "cost_usd": reply.cost_usd,
        "deferrals": deferrals, "is_cut": reply.is_cut, "marks": dict(marks),
    }  # fmt: skip


def deferrals_of(record: Json) -> int:
    assert isinstance(record, dict)
    return int(str(record["deferrals"]))


def replies_in(waits: Sequence[Wait], prefix: str = "") -> list[JsonObject]:
    """The records of all model replies of a turn; prefix: of one phase."""
    return [wait.content["output"] for wait in waits if wait.status == "success" and _model_call(wait, prefix)]


def last_model_call(waits: Sequence[Wait], prefix: str = "") -> int:
    """The last model call that has begun, from 1; 0 for none. All tool calls of earlier replies have their results."""
    return max((_model_call(wait, prefix) for wait in waits), default=0)


def _model_call(wait: Wait, prefix: str) -> int:
    """The model call that this record belongs to, from 1; 0 for another kind of record."""
    call_id = CallId.parse(wait.call_id) if wait.kind == "inline" else None
    return call_id.model_call if call_id is not None and call_id.is_model_call and call_id.prefix == prefix else 0


def reply_of(record: Json) -> ModelReply:
    """The reply of a record."""
    assert isinstance(record, dict)
    found: Any = record
    calls = tuple(ToolCall(c["id"], c["tool"], c["arguments"]) for c in found["tool_calls"])
    return ModelReply(found["text"], output=found["output"], thinking=found["thinking"], input_tokens=found["input_tokens"],
                      output_tokens=found["output_tokens"], tool_calls=calls, cost_usd=found["cost_usd"], raw=found["raw"],
                      is_cut=found["is_cut"])  # fmt: skip


def tool_message(call: ToolCall, result: CallResult, *, is_untrusted: bool = False) -> ToolMessage:
    """The message to the model with the result of a call."""
    if result.is_good:
        return ToolMessage(call.id, call.tool, result.output, is_untrusted=is_untrusted)
    error = result.error or {}
    why = f"{error.get('code') or result.status}: {error.get('message') or 'it did not succeed'}"
    return ToolMessage(call.id, call.tool, why, is_error=True, is_untrusted=is_untrusted)


def failed_message(call: ToolCall, why: str) -> ToolMessage:
    return ToolMessage(call.id, call.tool, why, is_error=True)
