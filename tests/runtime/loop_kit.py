"""Helpers of the tests of the agent loop: scripted models that check each conversation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from heliograph import (
    AssistantMessage,
    Heliograph,
    ModelReply,
    ModelRequest,
    ScriptedModel,
    Signal,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from tests.runtime.kit import START

Step = str | ModelReply | list[ToolCall] | Exception


def call(tool: str, arguments: Any = None, call_id: str = "x1") -> ToolCall:
    return ToolCall(call_id, tool, {} if arguments is None else arguments)


class Model(ScriptedModel):
    """A model that answers step n with `steps[n]`, in any worker.

    A step may be a list of replies to repeated requests, in order; the last one is repeated.
    """

    def __init__(self, *steps: Step | tuple[Step, ...]):
        self._steps = steps
        self._times: dict[int, int] = {}
        super().__init__(self._answer)

    def _answer(self, request: ModelRequest) -> Any:
        assert problem_of(request) is None
        n = step_of(request)
        step = self._steps[min(n, len(self._steps) - 1)]
        if not isinstance(step, tuple):
            return step
        self._times[n] = self._times.get(n, 0) + 1
        return step[min(self._times[n], len(step)) - 1]

    @property
    def last(self) -> ModelRequest:
        return self.requests[-1]


def step_of(request: ModelRequest) -> int:
    """Return the number of earlier replies: results or a reminder follow each reply."""
    return sum(1 for m in request.messages if isinstance(m, AssistantMessage))


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


def results(request: ModelRequest) -> list[Any]:
    """Return the results that the model receives, oldest first; errors as ("error", text)."""
    messages = [m for m in request.messages if isinstance(m, ToolMessage)]
    return [("error", m.content) if m.is_error else m.content for m in messages]


def agent(model: Any, tools: Sequence[Any] = (), **options: Any) -> Heliograph:
    app = Heliograph("looping")
    app.prompt_agent("worker", "Work.", model=model, activate_on=START, updates="out", tools=list(tools), **options)
    return app


def payloads(signals: Sequence[Signal], name: str) -> list[Any]:
    return [signal.payload for signal in signals if signal.name == name]
