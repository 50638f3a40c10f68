"""The wire formats of two providers, and the conversations that they reject."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Protocol


class Reply(Protocol):
    """An answer, as far as it is put into words here."""

    words: Sequence[str]
    thinking: Sequence[str]
    signature: str
    calls: Sequence[tuple[str, str, str]]
    usage: tuple[int, int]
    is_cut: bool
    finish: str | None


def openai_events(answer: Reply, model: str) -> Iterator[str]:
    base = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": model}

    def chunk(delta: dict[str, Any], finish: str | None = None) -> str:
        return _data({**base, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    yield chunk({"role": "assistant", "content": ""})
    for word in answer.words:
        yield chunk({"content": word})
    for n, (call_id, name, arguments) in enumerate(answer.calls):
        call = {"index": n, "id": call_id, "type": "function", "function": {"name": name, "arguments": ""}}
        yield chunk({"tool_calls": [call]})
        for piece in _pieces(arguments):
            yield chunk({"tool_calls": [{"index": n, "function": {"arguments": piece}}]})
    yield chunk({}, answer.finish or ("length" if answer.is_cut else "tool_calls" if answer.calls else "stop"))
    input_tokens, output_tokens = answer.usage
    usage = {
        "prompt_tokens": input_tokens,
        "completion_tokens": output_tokens,
        "total_tokens": input_tokens + output_tokens,
    }
    yield _data({**base, "choices": [], "usage": usage})
    yield "data: [DONE]\n\n"


def anthropic_events(answer: Reply, model: str) -> Iterator[str]:
    input_tokens, output_tokens = answer.usage
    message: dict[str, Any] = {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": [],
               "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": input_tokens, "output_tokens": 1}}  # fmt: skip
    yield _event("message_start", message=message)
    blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    if answer.thinking:
        deltas: list[dict[str, Any]] = [{"type": "thinking_delta", "thinking": piece} for piece in answer.thinking]
        deltas.append({"type": "signature_delta", "signature": answer.signature})
        blocks.append(({"type": "thinking", "thinking": "", "signature": ""}, deltas))
    if answer.words:
        blocks.append(({"type": "text", "text": ""}, [{"type": "text_delta", "text": word} for word in answer.words]))
    for call_id, name, arguments in answer.calls:
        pieces = [{"type": "input_json_delta", "partial_json": piece} for piece in _pieces(arguments)]
        blocks.append(({"type": "tool_use", "id": call_id, "name": name, "input": {}}, pieces))
    for n, (start, deltas) in enumerate(blocks):
        yield _event("content_block_start", index=n, content_block=start)
        for delta in deltas:
            yield _event("content_block_delta", index=n, delta=delta)
        yield _event("content_block_stop", index=n)
    reason = answer.finish or ("max_tokens" if answer.is_cut else "tool_use" if answer.calls else "end_turn")
    yield _event(
        "message_delta", delta={"stop_reason": reason, "stop_sequence": None}, usage={"output_tokens": output_tokens}
    )
    yield _event("message_stop")


def openai_problem(body: dict[str, Any]) -> str | None:
    """Why OpenAI would reject these messages: a call without its answer, an answer without its call, an empty answer."""
    open_calls: list[str] = []
    for message in body["messages"]:
        if message["role"] == "tool":
            if message["tool_call_id"] not in open_calls:
                return f"messages with role 'tool' must answer a call: {message['tool_call_id']}"
            open_calls.remove(message["tool_call_id"])
            continue
        if open_calls:
            return f"tool_call_ids did not have response messages: {open_calls}"
        if message["role"] == "assistant":
            open_calls = [call["id"] for call in message.get("tool_calls") or []]
            if not open_calls and not message.get("content"):
                return "an assistant message needs content or tool_calls"
            for call in message.get("tool_calls") or []:
                if len(call["id"]) > 40:
                    return f"tool_calls.id: string too long, the maximum is 40: {call['id']}"
                json.loads(call["function"]["arguments"], parse_constant=_reject)
                if problem := _name_problem(call["function"]["name"]):
                    return problem
    return f"tool_call_ids did not have response messages: {open_calls}" if open_calls else None


def anthropic_problem(body: dict[str, Any]) -> str | None:
    """Why Anthropic would reject these messages: roles, empty content, unpaired calls, ids, thinking without its signature."""
    open_calls: list[str] = []
    ids: set[str] = set()
    previous = "assistant"
    for message in body["messages"]:
        if message["role"] == previous:
            return f"roles must alternate; two of {previous} follow each other"
        previous = message["role"]
        blocks = (
            message["content"]
            if isinstance(message["content"], list)
            else [{"type": "text", "text": message["content"]}]
        )
        if not blocks or any(block["type"] == "text" and not block["text"].strip() for block in blocks):
            return "content must not be empty"
        answered = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if sorted(answered) != sorted(open_calls):
            return f"tool_use ids {open_calls} were found without tool_result blocks immediately after: {answered}"
        open_calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
        if len({*ids, *open_calls}) != len(ids) + len(open_calls):
            return f"tool_use ids must be unique: {open_calls} after {sorted(ids)}"
        if not all(re.fullmatch("[a-zA-Z0-9_-]+", each) for each in open_calls):
            return f"tool_use.id should match '^[a-zA-Z0-9_-]+$': {open_calls}"
        ids.update(open_calls)
        for block in blocks:
            if block["type"] == "tool_use" and (problem := _name_problem(block["name"])):
                return problem
        if any(block["type"] == "thinking" and not block.get("signature") for block in blocks):
            return "thinking needs its signature"
        if any(block["type"] == "tool_use" and not isinstance(block["input"], dict) for block in blocks):
            return "tool_use.input is an object"
    return f"tool_use ids {open_calls} were found without tool_result blocks" if open_calls else None


def _name_problem(name: str) -> str | None:
    return None if re.fullmatch("[a-zA-Z0-9_-]{1,64}", name) else f"{name} does not match '^[a-zA-Z0-9_-]{{1,64}}$'"


def _reject(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _pieces(text: str) -> list[str]:
    return [piece for piece in (text[:5], text[5:]) if piece]


def _data(event: dict[str, Any]) -> str:
    return f"data: {json.dumps(event)}\n\n"


def _event(kind: str, **rest: Any) -> str:
    return f"event: {kind}\n{_data({'type': kind, **rest})}"
