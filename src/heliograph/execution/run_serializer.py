"""Commit the endings of one run one after another within a worker.

The version of a run guards its reactions: of several concurrent commits only the first succeeds, and the others are
computed again. So the turns of one run commit one after another, and each computes its reaction from the run as the previous
one left it.
"""

from __future__ import annotations

import asyncio

from heliograph.records import RunView


class RunSerializer:
    """The lock of one run. view: the newest version that this worker has seen; a hint, because the kernel decides."""

    def __init__(self, run_id: str, serializers: dict[str, RunSerializer]) -> None:
        self._run_id = run_id
        self._serializers = serializers
        self._lock: asyncio.Lock | None = None  # made by the second user, because a single one needs none
        self._users = 0
        self.view: RunView | None = None

    async def __aenter__(self) -> RunSerializer:
        self._users += 1
        if self._users == 1:
            return self
        if self._lock is None:
            self._lock = asyncio.Lock()
            await self._lock.acquire()  # without waiting: on behalf of the first user, who releases it
        try:
            await self._lock.acquire()
        except BaseException:
            self._remove_user()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._lock is not None:
            self._lock.release()
        self._remove_user()

    def _remove_user(self) -> None:
        self._users -= 1
        if self._users == 0:
            del self._serializers[self._run_id]

    def newest(self, view: RunView) -> RunView:
        return self.view if self.view is not None and self.view.version > view.version else view


class RunSerializers:
    """The serializers in use; each is removed with its last user."""

    def __init__(self) -> None:
        self._serializers: dict[str, RunSerializer] = {}

    def enter(self, run_id: str) -> RunSerializer:
        """Return the serializer of a run. The caller enters it at once with `async with`."""
        found = self._serializers.get(run_id)
        if found is None:
            found = self._serializers[run_id] = RunSerializer(run_id, self._serializers)
        return found
