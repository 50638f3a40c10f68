"""A stub of a model in a simulation: its worker can die between any two pieces of a reply."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator

from heliograph.errors import InvalidInput
from heliograph.harness.function import FunctionHarness
from heliograph.harness.scripted import ScriptedModel
from heliograph.ports import Chunk, Harness, ModelRequest


class InterruptedModel:
    """The harness of a stub, with an await before each piece of a reply."""

    def __init__(self, stub: Harness):
        self._stub = stub

    @property
    def model(self) -> str:
        return self._stub.model

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        await asyncio.sleep(0)
        async for chunk in self._stub.stream(request):
            await asyncio.sleep(0)
            yield chunk


def check_simulated(agent: str, harness: Harness, *, dies: bool) -> None:
    """Raise InvalidInput (`not_simulated`) for a stub that would give another result, or none, in a simulation.

    dies: workers may die, so a request may be repeated.
    """
    if dies and isinstance(harness, ScriptedModel) and not harness.repeats:
        raise InvalidInput(f"the script of agent {agent} is a list that runs across turns: after a crash, the repeated request would receive "
                           "the next reply; pass per_turn=True, or a mapping or a function", code="not_simulated")  # fmt: skip
    if isinstance(harness, FunctionHarness) and not inspect.iscoroutinefunction(harness.function):
        raise InvalidInput(f"the model of agent {agent} is a plain function, which runs in a thread; a simulation has none: make it async",
                           code="not_simulated")  # fmt: skip
