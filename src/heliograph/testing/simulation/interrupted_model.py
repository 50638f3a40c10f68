"""A stub of a model in a simulation: its worker can die between any two pieces of a reply."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from copy import copy
from typing import Any

from heliograph.errors import InvalidInput
from heliograph.execution.reply_stream import reply_stream
from heliograph.harness.function import FunctionHarness
from heliograph.harness.scripted import ScriptedModel
from heliograph.ports import Chunk, Harness, ModelRequest


class InterruptedModel:
    """The harness of a stub, with an await before each piece of a reply. A plain function is one step: a simulation has no threads."""

    def __init__(self, stub: Harness):
        self._stub = stub
        if isinstance(stub, FunctionHarness) and not inspect.iscoroutinefunction(stub.function):
            self._stub = copy(stub)
            self._stub.function = _as_one_step(stub.function)

    @property
    def model(self) -> str:
        return self._stub.model

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        await asyncio.sleep(0)
        async with reply_stream(self._stub, request) as chunks:
            async for chunk in chunks:
                await asyncio.sleep(0)
                yield chunk


def check_simulated(agent: str, harness: Harness, *, dies: bool) -> None:
    """Raise InvalidInput (`not_simulated`) for a stub that would give another result, or none, in a simulation.

    dies: workers may die, so a request may be repeated.
    """
    if dies and isinstance(harness, ScriptedModel) and not harness.repeats:
        raise InvalidInput(f"the script of agent {agent} is a list that runs across turns: after a crash, the repeated request would receive "
                           "the next reply; pass per_turn=True, or a mapping or a function", code="not_simulated")  # fmt: skip


def _as_one_step(function: Callable[[ModelRequest], Any]) -> Callable[[ModelRequest], Any]:
    async def call(request: ModelRequest) -> Any:
        result = function(request)
        return await result if inspect.isawaitable(result) else result

    return call
