"""Commit the endings of one run one after another within a worker.

The version of a run guards its reactions: of several concurrent commits only the first succeeds, and the others are
computed again. So the turns of one run commit one after another, and each computes its reaction from the run as the previous
one left it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from heliograph.records import RunView


class RunSerializer:
    """The lock of one run. view: the newest version that this worker has seen; a hint, because the kernel decides."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0
        self.view: RunView | None = None

    def newest(self, view: RunView) -> RunView:
        return self.view if self.view is not None and self.view.version > view.version else view


class RunSerializers:
    """The serializers in use; each is removed with its last user."""

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
