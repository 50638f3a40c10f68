"""Follow the signals of a run, or wait for its end, even through outages of the database."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import TypeVar

from heliograph.errors import StoreUnavailable
from heliograph.execution.run_ends import END, RunEnds
from heliograph.ledger.reader import Reader
from heliograph.signals.model import Signal
from heliograph.signals.run_end import read_end
from heliograph.types import JsonObject
from heliograph.world.seam import World, bell_keys

POLL_SECONDS = 0.5
_PAGE_MAX = 1000  # signals
_OUTAGE_SECONDS_MAX = 60.0

T = TypeVar("T")


class RunFollower:
    """Yields the signals of one project's runs as they are recorded. ends: those that the workers of this process commit."""

    def __init__(self, world: World, reader: Reader, project: str, ends: RunEnds):
        self._world = world
        self._reader = reader
        self._project = project
        self._ends = ends

    async def follow(self, run_id: str, after: int) -> AsyncGenerator[Signal, None]:
        """Yield the signals of `pages` one by one."""
        async with aclosing(self.pages(run_id, after)) as pages:
            async for page in pages:
                for signal in page:
                    yield signal

    async def pages(self, run_id: str, after: int) -> AsyncGenerator[Sequence[Signal], None]:
        """Yield the signals after position `after` in pages, up to `workflow:end`. Raises StoreUnavailable after an outage of one minute."""
        subscription = self._world.subscribe(bell_keys(self._project, [f"log:{run_id}"]))
        # a caller that resumes may have read the end before, and would wait for it forever
        may_have_ended, is_over = after > 0, False
        try:
            while True:
                subscription.clear()
                page = await self._retried(partial(self._reader.signals, run_id, after, _PAGE_MAX))
                if page:
                    end = next((at for at, signal in enumerate(page, 1) if signal.name == END), None)
                    yield page[:end]
                    if end is not None:
                        return
                    after, may_have_ended = page[-1].seq, False
                    subscription.found()
                    if len(page) == _PAGE_MAX:
                        continue
                elif is_over:
                    return
                else:
                    is_over = may_have_ended and await self._retried(partial(self._is_over, run_id))
                # later signals ring: a further read would find nothing, while this process may run the turns
                if not is_over and not await subscription.wait(POLL_SECONDS):
                    may_have_ended = True  # no ring: the run may have ended without a workflow:end
        finally:
            subscription.close()

    async def end(self, run_id: str) -> JsonObject:
        """Wait for the end of a run; return the payload of its `workflow:end`.

        Raises NotFound (`unknown_run`, `pruned_run`), StoreUnavailable after an outage of one minute, KernelRejected for a damaged log.
        """
        subscription = self._world.subscribe(bell_keys(self._project, [f"log:{run_id}"]))
        read_count, is_late = 0, False
        try:
            with self._ends.awaited(self._project, run_id) as end:
                while True:
                    subscription.clear()
                    if end.payload is not None:
                        return end.payload
                    if is_late or not self._ends.has_turn(self._project, run_id):
                        run = await self._retried(partial(self._reader.progress_of_run, run_id))
                        if run.status == "ended":
                            page = await self._retried(partial(self._reader.signals, run_id, run.signal_count - 1, 1))
                            return read_end(run_id, page[0] if page else None)
                        if run.signal_count > read_count:
                            read_count = run.signal_count
                            subscription.found()
                    # after this time without a ring somebody may have stopped the run, or the ring was lost
                    is_late = not await subscription.wait(POLL_SECONDS)
        finally:
            subscription.close()

    async def _is_over(self, run_id: str) -> bool:
        return (await self._reader.run(run_id)).status == "ended"

    async def _retried(self, read: Callable[[], Awaitable[T]]) -> T:
        """Return the result of `read`; retry while the database is unreachable."""
        until = self._world.monotonic() + _OUTAGE_SECONDS_MAX
        while True:
            try:
                return await read()
            except StoreUnavailable:
                if self._world.monotonic() > until:
                    raise
                await self._world.sleep(POLL_SECONDS)
