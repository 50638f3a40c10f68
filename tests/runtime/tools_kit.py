"""Helpers of the tests of tools: a scripted model that keeps its results, and workers that are killed."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any

from heliograph import Heliograph, ModelRequest, ScriptedModel, Tool, ToolCall, ToolMessage, tool
from tests.runtime.kit import START


class Script:
    """A model that makes these calls, one list in each reply, and keeps their results."""

    def __init__(self, *steps: Sequence[ToolCall]):
        self._results: list[list[ToolMessage]] = []
        self.offered: list[str] = []
        self._steps = steps

    def __call__(self, request: ModelRequest) -> Any:
        answers = [message for message in request.messages if isinstance(message, ToolMessage)]
        self.offered = [spec.name for spec in request.tools]
        done, count = 0, len(answers)
        while done < len(self._steps) and count >= len(self._steps[done]):
            count -= len(self._steps[done])
            done += 1
        self._results = [answers]
        return list(self._steps[done]) if done < len(self._steps) else "done"

    @property
    def results(self) -> list[Any]:
        return [(message.content, message.is_error) for message in self._results[-1]]


def app_of(script: Script, *tools: Any, **options: Any) -> Heliograph:
    app = Heliograph("tools", deps=options.pop("deps", None))
    app.prompt_agent("worker", "Do it.", model=ScriptedModel(script), activate_on=START, updates="out", tools=list(tools),
                     **options)  # fmt: skip
    return app


_ids = itertools.count(1)


def called(name: str, **arguments: Any) -> ToolCall:
    return ToolCall(f"id-{next(_ids)}", name, arguments)


class Pay:
    """A payment tool whose worker is killed during the first execution."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.made = 0

    def tool(self, **options: Any) -> Tool:
        async def pay(amount: int) -> str:
            self.made += 1
            self.begun.set()
            if self.made == 1:
                await asyncio.Event().wait()
            return f"paid {amount}"

        return tool(**options)(pay)
