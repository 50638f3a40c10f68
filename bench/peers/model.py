"""Calls of the model of `bench.provider` by the least code that streams, so that a peer's figures have no agent framework in them."""

from __future__ import annotations

import json
import os
from typing import Any

import httpx

PROMPT = "Add one and two."
TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add two numbers.",
        "parameters": {
            "type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"],
        },
    },
}  # fmt: skip


class Model:
    def __init__(self) -> None:
        self._client = httpx.AsyncClient(base_url=os.environ["OPENAI_BASE_URL"], timeout=30)

    async def close(self) -> None:
        await self._client.aclose()

    async def ask(self, messages: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the next message of the conversation."""
        content, calls = "", list[dict[str, Any]]()
        body = {"model": "bench", "messages": messages, "stream": True, "tools": [TOOL]}
        async with self._client.stream("POST", "/chat/completions", json=body) as response:
            response.raise_for_status()
            async for line in response.aiter_lines():
                data = line.removeprefix("data: ")
                if not data or data == "[DONE]":
                    continue
                for choice in json.loads(data)["choices"]:
                    delta = choice["delta"]
                    content += delta.get("content") or ""
                    for call in delta.get("tool_calls", ()):
                        if "id" in call:
                            calls.append(call)
                        else:
                            calls[call["index"]]["function"]["arguments"] += call["function"]["arguments"]
        return {"role": "assistant", "content": content, **({"tool_calls": calls} if calls else {})}


def add(call: dict[str, Any]) -> dict[str, Any]:
    """Make one tool call, and return the message with its result."""
    given = json.loads(call["function"]["arguments"])
    return {"role": "tool", "tool_call_id": call["id"], "content": str(given["a"] + given["b"])}
