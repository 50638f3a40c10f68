"""Order the endings of one run within a worker, and let those that are ready at the same time share a commit.

The version of a run guards its reactions: of several concurrent commits only the first succeeds, and the others are
computed again. So each ending is computed from the run as the one before it leaves it. An ending that still waits to be
sent may be followed at once: the next one is computed from the run that it will make, and joins its call
(decision 0149). Otherwise the next ending waits until those under way have their answers.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

import msgspec

from heliograph.execution.packed_commit import as_jsonb
from heliograph.reactive.joined_signals import lacks_positions
from heliograph.records import RunView
from heliograph.signals.payload import is_longer
from heliograph.types import Json

# The limit of the state and of the output of an ending that another one may follow: both join one call, which has at most 128 MiB.
_BYTES_MAX = 256 * 1024


class RunSerializer:
    """The endings of one run that are under way.

    view: the newest version that this worker has seen committed; a hint, because the kernel decides.
    """

    def __init__(self, run_id: str, serializers: dict[str, RunSerializer]) -> None:
        self._run_id = run_id
        self._serializers = serializers
        self._users = 0
        self._under_way = 0
        self._last_turn_id = ""  # of the newest ending under way, with the run that it makes and its output
        self._last_view: RunView | None = None
        self._last_output: Json = None
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._stored_views: list[RunView] = []  # the last two that have the form of the database
        self.view: RunView | None = None

    def __enter__(self) -> RunSerializer:
        self._users += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._users -= 1
        if self._users == 0:
            del self._serializers[self._run_id]

    async def ready(self, may_follow: Callable[[str], bool]) -> None:
        """Return when the next ending may be computed: none is under way, or it can follow the newest one.

        may_follow: whether the next ending would be sent in one call with the ending of this turn.
        """
        while self._under_way and not self._can_follow(may_follow):
            await self.settled()

    async def settled(self) -> None:
        """Return when the endings that are under way have their answers."""
        if self._under_way:
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            await waiter

    def newest(self, view: RunView) -> RunView:
        """Return the newest version of the run, as the database returns it. It may be the one that the newest ending under way will make."""
        if self.view is not None and self.view.version > view.version:
            view = self.view = self._stored(self.view)
        if self._last_view is not None and self._last_view.version > view.version:
            view = self._last_view = self._stored(self._last_view)
        return view

    def followed(self, view: RunView) -> str | None:
        """Return the turn whose ending, which is not committed yet, makes this version of the run. None if it is committed."""
        return self._last_turn_id if view is self._last_view else None

    def sending(self, turn_id: str, after: RunView, output: Json = None) -> None:
        """Note an ending that is under way until `answered`. after: the run that it makes."""
        self._under_way += 1
        self._last_turn_id, self._last_view, self._last_output = turn_id, after, output

    def answered(self) -> None:
        """Note that an ending is not under way any more."""
        self._under_way -= 1
        if self._under_way == 0:
            self._last_view = self._last_output = None
            while self._waiting:
                if not (waiter := self._waiting.popleft()).done():
                    waiter.set_result(None)

    def committed(self, view: RunView) -> None:
        """Note a version of the run that a call has returned, or has made."""
        if self.view is None or view.version > self.view.version:
            # only the kernel knows the positions of the signals that a join has collected in this commit
            self.view = None if lacks_positions(view.memory) else view

    def _stored(self, view: RunView) -> RunView:
        """A version as the database returns it: its keys have one order for each worker, and in a replay."""
        if any(view is each for each in self._stored_views):
            return view
        stored = msgspec.structs.replace(view, state=as_jsonb(view.state))
        self._stored_views = [*self._stored_views[-1:], stored]
        return stored

    def _can_follow(self, may_follow: Callable[[str], bool]) -> bool:
        view = self._last_view
        return (
            view is not None and not lacks_positions(view.memory) and may_follow(self._last_turn_id)
            and not is_longer(view.state, _BYTES_MAX) and not is_longer(self._last_output, _BYTES_MAX)
        )  # fmt: skip


class RunSerializers:
    """The serializers in use; each is removed with its last user."""

    def __init__(self) -> None:
        self._serializers: dict[str, RunSerializer] = {}

    def enter(self, run_id: str) -> RunSerializer:
        """Return the serializer of a run. The caller enters it at once with `with`."""
        found = self._serializers.get(run_id)
        if found is None:
            found = self._serializers[run_id] = RunSerializer(run_id, self._serializers)
        return found
