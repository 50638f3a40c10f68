"""One ending at a time per run and worker, and what the run looks like after it.

Reactions are guarded by the version of their run (K24), so of many that are sent
at once only the first can commit; the others would be computed for nothing, with
the whole state in each answer. So the turns of one run that end in one worker
take turns, and each begins from what the one before it left.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from heliograph.records import RunView


class RunSerializer:
    """The way to one run's version. `view` is the newest that anybody here has seen; only a hint, the kernel decides."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0
        self.view: RunView | None = None

    def newest(self, view: RunView) -> RunView:
        return self.view if self.view is not None and self.view.version > view.version else view


class RunSerializers:
    """The gates in use; a gate is forgotten with its last user."""

    def __init__(self) -> None:
        self._serializers: dict[str, RunSerializer] = {}

    @asynccontextmanager
    async def enter(self, run_id: str) -> AsyncIterator[RunSerializer]:
        serializer = self._serializers.setdefault(run_id, RunSerializer())
        serializer.users += 1
        try:
            async with serializer.lock:
                yield serializer
        finally:
            serializer.users -= 1
            if serializer.users == 0:
                del self._serializers[run_id]
