"""The signals of one run, as they are recorded. The run can be checked before the first signal is read."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import aclosing
from typing import Any

from heliograph.runtime import Runtime
from heliograph.signals.model import Signal


class FollowedRun(AsyncIterator[Signal]):
    """The signals of a run: iterate over it. `await` it first where an unknown run has to be an error before anything else happens."""

    def __init__(self, runtime: Runtime, run_id: str, after: int):
        self._runtime = runtime
        self._run_id = run_id
        self._is_known = False
        self._signals = self._follow(after)

    def __await__(self) -> Generator[Any, None, FollowedRun]:
        return self._checked().__await__()

    async def __anext__(self) -> Signal:
        return await anext(self._signals)

    async def aclose(self) -> None:
        """End the iteration."""
        await self._signals.aclose()

    async def _checked(self) -> FollowedRun:
        if not self._is_known:
            await self._runtime.reader.run(self._run_id)
            self._is_known = True
        return self

    async def _follow(self, after: int) -> AsyncGenerator[Signal, None]:
        await self._checked()
        async with aclosing(self._runtime.follow(self._run_id, after)) as signals:
            async for signal in signals:
                yield signal
