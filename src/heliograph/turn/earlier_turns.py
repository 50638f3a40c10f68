"""A conversation: the earlier turns of an agent as messages with roles, the newest that fit into the model's window. Pure.

A turn of a conversation answers one message. Its messages are the text of the user, each reply of the model with tool calls, their results,
and the reply that ended the turn. A turn goes to the model whole or not at all, except that long results are cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import msgspec

from heliograph.codes import CANCELED
from heliograph.ports import AssistantMessage, FileReference, Message, ToolCall, ToolMessage, UserMessage
from heliograph.reactive.run_memory import SESSION
from heliograph.records import Claimed, EarlierTurn, Wait
from heliograph.redaction import redacted, redacted_text
from heliograph.turn.call_id import CallId
from heliograph.turn.calls import result_of
from heliograph.turn.conversation import tool_message
from heliograph.turn.deliverable import read_output
from heliograph.turn.taint import Taint
from heliograph.turn.untrusted import UNTRUSTED, is_marked, untrusted
from heliograph.types import Json

MESSAGE = "user:message"  # the signal of a message that a session sends
BYTES_PER_TOKEN = 4  # of an estimate; providers count with their own tables
RESULT_CHARACTERS = 2000  # of each result of a tool in an earlier turn
STOPPED = "[This reply was stopped here.]"
FAILED = "[This message has no reply: {why}]"
OMITTED = "[The earlier messages of this conversation are left out.]"


def is_of_session(claimed: Claimed) -> bool:
    """Whether a turn answers a message of a session."""
    return claimed.cause.name == MESSAGE and claimed.run.memory.get(SESSION) is not None


def text_of_message(payload: Any) -> str:
    """The text of a message: its `text`, or the whole payload as JSON if it has another form."""
    if isinstance(payload, str):
        return payload
    if isinstance(payload, dict) and isinstance(payload.get("text"), str):
        return str(payload["text"])
    return msgspec.json.encode(payload).decode()


def files_of_message(payload: Any) -> tuple[FileReference, ...]:
    """The files that a message names. What has another form is left out: other programs may enqueue messages."""
    files = payload.get("files") if isinstance(payload, dict) else None
    return tuple(
        FileReference(each["url"], kind if isinstance(kind := each.get("media_type"), str) else None)
        for each in (files if isinstance(files, list) else ())
        if isinstance(each, dict) and isinstance(each.get("url"), str)
    )


def fitting_turns(turns: Sequence[EarlierTurn], tokens_max: int) -> tuple[list[EarlierTurn], int]:
    """The newest turns whose messages fit together, and the tokens that remain. turns: the newest first, as are the results."""
    found, room = list[EarlierTurn](), tokens_max
    for turn in turns:
        size = sum(map(_tokens, _messages(turn)))
        if size > room:
            break
        room -= size
        found.append(turn)
    return found, room


def earlier_messages(turns: Sequence[EarlierTurn], taint: Taint, *, is_whole: bool) -> list[Message]:
    """The messages of earlier turns, the oldest first. Untrusted content taints the turn that reads it.

    turns: the newest first. is_whole: they are the whole conversation; otherwise a note stands in the place of its beginning.
    """
    messages: list[Message] = [] if is_whole else [UserMessage(OMITTED)]
    for turn in reversed(turns):
        for message in _messages(turn):
            if isinstance(message, ToolMessage) and message.is_untrusted:
                taint.read(message.tool)
            messages.append(message)
        if is_marked(turn.content) or turn.cause.trust == UNTRUSTED:
            taint.read("an earlier message")
    return messages


def reply_text(turn: EarlierTurn) -> str:
    """The text of the reply that ended a turn: its output, or else what it had streamed when it was stopped."""
    if turn.outcome in ("success", "partial"):
        output: Json = read_output(turn.content) if isinstance(turn.content, dict) else None
        return output if isinstance(output, str) else "" if output is None else msgspec.json.encode(output).decode()
    return streamed_text(turn)


def streamed_text(turn: EarlierTurn) -> str:
    """The text that the last model call of a turn had streamed; a piece that came twice counts once."""
    text = ""
    for signal in turn.streamed or ():
        payload = signal.payload if isinstance(signal.payload, dict) else {}
        if signal.name == "harness:start":
            text = ""
        elif payload.get("offset", len(text)) == len(text):
            text += str(payload.get("content", ""))
    return text


def _messages(turn: EarlierTurn) -> list[Message]:
    cause = turn.cause.payload
    text = redacted_text(text_of_message(cause))
    is_untrusted = turn.cause.trust == UNTRUSTED
    messages: list[Message] = [
        UserMessage(untrusted(text, "an earlier message") if is_untrusted else text, files_of_message(cause))
    ]
    messages += _tool_messages(turn)
    messages.append(AssistantMessage(_ending(turn)))
    return messages


def _ending(turn: EarlierTurn) -> str:
    text = redacted_text(reply_text(turn))
    if is_marked(turn.content) and text:
        text = untrusted(text, "an earlier reply")
    if turn.outcome in ("success", "partial"):
        return text or FAILED.format(why="it is empty")
    if _code(turn) == CANCELED or turn.outcome == "canceled":
        return f"{text}\n{STOPPED}".lstrip()
    return FAILED.format(why=_code(turn) or turn.outcome)


def _tool_messages(turn: EarlierTurn) -> list[Message]:
    """The replies of the model with tool calls, each with the results of its calls."""
    messages: list[Message] = []
    waits = {wait.call_id: wait for wait in turn.waits}
    for wait in turn.waits:
        called = CallId.parse(wait.call_id) if wait.kind == "inline" and wait.status == "success" else None
        reply: Any = wait.content["output"] if called is not None and called.is_model_call else {}
        given = reply.get("tool_calls") if called is not None and not called.prefix else None
        if not given or called is None:
            continue
        calls = [ToolCall(_call_id(turn, called.model_call, n), each["tool"], each["arguments"])
                 for n, each in enumerate(given, 1)]  # fmt: skip
        messages.append(AssistantMessage(redacted_text(str(reply["text"])), tuple(calls)))
        for n, call in enumerate(calls, 1):
            messages.append(_result_message(call, waits.get(str(CallId(called.model_call, n)))))
    return messages


def _call_id(turn: EarlierTurn, step: int, n: int) -> str:
    """The id of a tool call in the conversation: those of providers may repeat from turn to turn."""
    return f"call_{sha256(f'{turn.turn_id}/{step}/{n}'.encode()).hexdigest()[:24]}"


def _result_message(call: ToolCall, wait: Wait | None) -> ToolMessage:
    if wait is None or wait.state != "resolved":
        return ToolMessage(call.id, call.tool, "it has no result", is_error=True)
    return _short(tool_message(call, result_of(wait), is_untrusted=is_marked(wait.content)))


def _short(message: ToolMessage) -> ToolMessage:
    content = redacted(message.content)
    text = content if isinstance(content, str) else msgspec.json.encode(content).decode()
    if len(text) > RESULT_CHARACTERS:
        content = f"{text[:RESULT_CHARACTERS]} [cut: {len(text)} characters]"
    return ToolMessage(message.tool_call_id, message.tool, content, message.is_error, message.is_untrusted)


def _code(turn: EarlierTurn) -> str | None:
    error = turn.content.get("error") if isinstance(turn.content, dict) else None
    return str(error.get("code")) if isinstance(error, dict) else None


def _tokens(message: Message) -> int:
    """An estimate: the bytes of its texts over four, and four for each message."""
    if isinstance(message, UserMessage):
        size = len(_bytes(message.content)) + sum(len(each.url) for each in message.files)
    elif isinstance(message, ToolMessage):
        size = len(_bytes(message.content))
    else:
        size = len(_bytes(message.text)) + sum(len(_bytes(call.arguments)) for call in message.tool_calls)
    return BYTES_PER_TOKEN + size // BYTES_PER_TOKEN


def _bytes(value: Json) -> bytes:
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else msgspec.json.encode(value)
