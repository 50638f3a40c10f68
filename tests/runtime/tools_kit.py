"""Helpers of the tests of tools: a scripted model that keeps its results, and workers that are killed."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any

from heliograph import Heliograph, ScriptedModel, Tool, ToolCall, ToolMessage, tool
from tests.runtime.kit import START


class Script(ScriptedModel):
    """A model that makes these calls, one list in each reply, and then is done."""

    def __init__(self, *steps: Sequence[ToolCall]):
        super().__init__([*steps, "done"], per_turn=True)

    @property
    def offered(self) -> list[str]:
        """The tools of the newest request."""
        return [spec.name for spec in self.requests[-1].tools]

    @property
    def results(self) -> list[Any]:
        """The results of the newest request, in order."""
        messages = (message for message in self.requests[-1].messages if isinstance(message, ToolMessage))
        return [(message.content, message.is_error) for message in messages]


def app_of(script: Script, *tools: Any, **options: Any) -> Heliograph:
    app = Heliograph("tools", deps=options.pop("deps", None))
    app.prompt_agent("worker", "Do it.", model=script, activate_on=START, updates="out", tools=list(tools),
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
