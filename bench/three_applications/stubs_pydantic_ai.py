"""Models of the three applications for pydantic-ai that need no key. They are not counted: a real application names its model instead."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel


def _prompts(messages: list[ModelMessage]) -> list[str]:
    return [str(part.content) for message in messages if isinstance(message, ModelRequest)
            for part in message.parts if isinstance(part, UserPromptPart)]  # fmt: skip


def _replying(reply: Callable[[list[str]], str]) -> FunctionModel:
    async def pieces(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        yield reply(_prompts(messages))

    return FunctionModel(
        lambda messages, info: ModelResponse([TextPart(reply(_prompts(messages)))]), stream_function=pieces
    )


def _clerk(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    done = {part.tool_name for message in messages for part in message.parts if isinstance(part, ToolReturnPart)}
    if "find_order" not in done:
        return ModelResponse([ToolCallPart("find_order", {"message": "tea"})])
    if "refund" not in done:
        return ModelResponse([ToolCallPart("refund", {"order": "A-17", "amount": 250})])
    return ModelResponse([TextPart("Your money is on its way.")])


topic = _replying(lambda prompts: "refund")
mood = _replying(lambda prompts: "angry")
summary = _replying(lambda prompts: f"short {prompts[-1].split()[-1]}")
digest = _replying(lambda prompts: f"{prompts[-1].count('short')} documents")
chatter = _replying(lambda prompts: f"message {len(prompts)}")
clerk = FunctionModel(_clerk)
