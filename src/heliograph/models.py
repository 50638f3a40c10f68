"""Models: the protocol, messages and replies, scripted models for tests, and models from functions and other libraries."""

from __future__ import annotations

from heliograph.lazy_names import lazy_names

TYPE_CHECKING = False  # type checkers assume True

if TYPE_CHECKING:
    from heliograph.harness.function import FunctionHarness
    from heliograph.harness.pydantic_agent import AgentHarness
    from heliograph.harness.scripted import ScriptedModel
    from heliograph.ports import (
        AssistantMessage,
        FileReference,
        Harness,
        ModelReply,
        ModelRequest,
        TextDelta,
        ThinkingDelta,
        ToolCall,
        ToolMessage,
        ToolSpec,
        UserMessage,
    )

__all__ = [
    "AgentHarness",
    "AssistantMessage",
    "FileReference",
    "FunctionHarness",
    "Harness",
    "ModelReply",
    "ModelRequest",
    "ScriptedModel",
    "TextDelta",
    "ThinkingDelta",
    "ToolCall",
    "ToolMessage",
    "ToolSpec",
    "UserMessage",
]

if not TYPE_CHECKING:
    __getattr__ = lazy_names(
        __name__,
        {
            "heliograph.harness.function": ("FunctionHarness",),
            "heliograph.harness.pydantic_agent": ("AgentHarness",),
            "heliograph.harness.scripted": ("ScriptedModel",),
            "heliograph.ports": (
                "AssistantMessage",
                "FileReference",
                "Harness",
                "ModelReply",
                "ModelRequest",
                "TextDelta",
                "ThinkingDelta",
                "ToolCall",
                "ToolMessage",
                "ToolSpec",
                "UserMessage",
            ),
        },
    )
