"""Models of the three applications for LangGraph that need no key. They are not counted: a real application opens its own model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult


class Stub(BaseChatModel):
    """A model that a function plays."""

    play: Callable[[list[BaseMessage]], AIMessage]

    @property
    def _llm_type(self) -> str:
        return "stub"

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self.play(messages))])


def _replying(reply: Callable[[list[BaseMessage]], str]) -> Stub:
    return Stub(play=lambda messages: AIMessage(reply(messages)))


def _clerk(messages: list[BaseMessage]) -> AIMessage:
    done = [message.name for message in messages if message.type == "tool"]
    if "find_order" not in done:
        return AIMessage("", tool_calls=[{"id": "1", "name": "find_order", "args": {"message": "tea"}}])
    if "refund" not in done:
        return AIMessage("", tool_calls=[{"id": "2", "name": "refund", "args": {"order": "A-17", "amount": 250}}])
    return AIMessage("Your money is on its way.")


topic = _replying(lambda messages: "refund")
mood = _replying(lambda messages: "angry")
summary = _replying(lambda messages: f"short {messages[-1].text.split()[-1]}")
digest = _replying(lambda messages: f"{messages[-1].text.count('short')} documents")
chatter = _replying(lambda messages: f"message {len([m for m in messages if m.type == 'human'])}")
clerk = Stub(play=_clerk)
