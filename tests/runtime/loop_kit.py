"""Helpers of the tests of the agent loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from heliograph import Heliograph, Signal
from heliograph.models import AssistantMessage, ModelRequest, ScriptedModel, ToolCall, ToolMessage, UserMessage
from tests.runtime.kit import START


def call(tool: str, arguments: Any = None, call_id: str = "x1") -> ToolCall:
    return ToolCall(call_id, tool, {} if arguments is None else arguments)


def problem_of(request: ModelRequest) -> str | None:
    """Return the reason why a provider would reject these messages, or None."""
    wanted: list[str] = []
    for message in request.messages:
        match message:
            case ToolMessage(tool_call_id=call_id):
                if not wanted or wanted.pop(0) != call_id:
                    return f"{call_id} answers no call in its place"
            case _ if wanted:
                return f"{wanted} have no answer"
            case AssistantMessage(text, tool_calls):
                if not text and not tool_calls:
                    return "an answer is empty"
                wanted = [each.id for each in tool_calls]
            case UserMessage():
                pass
    return f"{wanted} have no answer" if wanted else None


def results(model: ScriptedModel, number: int = -1) -> list[Any]:
    """Return the results that a request has, by default the newest one, oldest first; errors as ("error", text)."""
    messages = [m for m in model.requests[number].messages if isinstance(m, ToolMessage)]
    return [("error", m.content) if m.is_error else m.content for m in messages]


def agent(model: Any, tools: Sequence[Any] = (), *, deps: Any = None, **options: Any) -> Heliograph:
    app = Heliograph("looping", deps=deps)
    app.prompt_agent("worker", "Work.", model=model, activate_on=START, updates="out", tools=list(tools), **options)
    return app


def payloads(signals: Sequence[Signal], name: str) -> list[Any]:
    return [signal.payload for signal in signals if signal.name == name]
