"""Follow the signals of a run, or wait for its end, even through outages of the database."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import TypeVar

from heliograph.errors import StoreUnavailable
from heliograph.execution.local_runs import LocalEnd, LocalRuns
from heliograph.ledger.reader import Reader
from heliograph.ledger.rows import RunProgressRow
from heliograph.signals.model import Signal
from heliograph.signals.run_end import END, read_end
from heliograph.types import JsonObject
from heliograph.world.seam import World, bell_keys

POLL_SECONDS = 0.5
_PAGE_MAX = 1000  # signals
_OUTAGE_SECONDS_MAX = 60.0

T = TypeVar("T")


class RunFollower:
    """Follows the runs of one project: yields their signals, or waits for their ends. local_runs: what the workers of this process do."""

    def __init__(self, world: World, reader: Reader, project: str, local_runs: LocalRuns):
        self._world = world
        self._reader = reader
        self._project = project
        self._local_runs = local_runs

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

    async def wait_for_end(self, run_id: str) -> LocalEnd | RunProgressRow:
        """Wait until a run has ended; return its end if this process has just committed it, else its row.

        Raises NotFound (`unknown_run`, `pruned_run`), StoreUnavailable after an outage of one minute.
        """
        subscription = self._world.subscribe(bell_keys(self._project, [f"log:{run_id}"]))
        signals_seen, is_check_due = 0, False
        try:
            with self._local_runs.waiter(self._project, run_id) as waiter:
                while True:
                    subscription.clear()
                    if waiter.end is not None:
                        return waiter.end
                    if is_check_due or not self._local_runs.has_turn(self._project, run_id):
                        run = await self._retried(partial(self._reader.progress_of_run, run_id))
                        if run.status == "ended":
                            return run
                        if run.signal_count > signals_seen:
                            signals_seen = run.signal_count
                            subscription.found()
                    # without a ring: it may be lost, or the run may have ended without the turn that is executed here
                    is_check_due = not await subscription.wait(POLL_SECONDS)
        finally:
            subscription.close()

    async def end(self, run_id: str) -> tuple[str, JsonObject]:
        """Wait for the end of a run; return its application, and the payload of its `workflow:end`.

        Raises the errors of `wait_for_end`, and KernelRejected for a damaged log.
        """
        found = await self.wait_for_end(run_id)
        if isinstance(found, LocalEnd):
            if (payload := found.read()) is not None:
                return found.target, payload
            found = await self._retried(partial(self._reader.progress_of_run, run_id))
        page = await self._retried(partial(self._reader.signals, run_id, found.signal_count - 1, 1))
        if not page:
            await self._retried(partial(self._reader.progress_of_run, run_id))  # raises if the run was pruned meanwhile
        return found.target, read_end(run_id, page[0] if page else None)

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
