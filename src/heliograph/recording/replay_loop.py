"""An event loop without a clock and without IO, for a replay: when nothing is ready, the script gives its next answer."""

from __future__ import annotations

import asyncio
import heapq
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from heliograph.recording.no_network import DetachedLoop

_OWN_THREADS = "heliograph "  # the names of the threads that Heliograph starts begin with it
# Of one part: code that waits in a loop for what a replay does not have would never end.
_TIMERS_MAX = 100_000
_CALLBACKS_MAX = 1_000_000  # one after another, without a moment at which nothing is ready


class ReplayLoop(DetachedLoop):
    """Runs one part. on_idle: called when nothing is ready; returns False to end the loop."""

    _ready: deque[asyncio.Handle]
    _scheduled: list[Any]

    def __init__(self, on_idle: Callable[[], bool]):
        super().__init__()
        self._on_idle = on_idle
        self._now = 0.0
        self._timers = 0  # how many have passed
        self._callbacks = 0  # how many have run since nothing was ready
        self.set_exception_handler(lambda loop, context: None)  # of tasks that the end of the part drops

    def time(self) -> float:
        return self._now

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """Run a function at once: another thread would make the order of the replay depend on this machine."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def _run_once(self) -> None:
        while not self._ready and not self._stopping:  # type: ignore[attr-defined]
            self._callbacks = 0
            if not self._on_idle():
                self.stop()
        self._callbacks += len(self._ready)
        for _ in range(len(self._ready)):
            handle = self._ready.popleft()
            if not handle.cancelled():
                handle._run()
        if self._callbacks > _CALLBACKS_MAX:
            self.stop()

    @property
    def problem(self) -> str | None:
        """Why the code of the application would never end; None if it may."""
        if self._callbacks > _CALLBACKS_MAX:
            return f"the code never ends: it yields {_CALLBACKS_MAX:,} times, as with asyncio.sleep(0) in a loop, and makes no call"
        if self._timers > _TIMERS_MAX:
            return f"the code never ends: it waits for {_TIMERS_MAX:,} timers, as with asyncio.sleep in a loop"
        return None

    def pass_time(self) -> bool:
        """Advance the time to the next timer of the application's own; return whether there was one, among the first 100,000."""
        while self._scheduled and self._timers <= _TIMERS_MAX:
            timer = heapq.heappop(self._scheduled)
            timer._scheduled = False
            if not timer.cancelled():
                self._now = max(self._now, timer._when)
                self._timers += 1
                self._ready.append(timer)
                return True
        return False

    def is_woken(self, seconds: float) -> bool:
        """Whether a thread of the application wakes a task within `seconds`. Returns at once if there is no thread."""
        ends = time.monotonic() + seconds
        while not self._ready and _has_other_threads() and time.monotonic() < ends:
            time.sleep(0.01)
        return bool(self._ready)

    def drop(self) -> None:
        """End all tasks, which wait for what does not come, and close the loop."""
        for task in asyncio.all_tasks(self):
            task.cancel()
        with suppress(BaseException):
            self.run_until_complete(asyncio.sleep(0))
        for task in asyncio.all_tasks(self):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        self.close()

    def _process_events(self, event_list: Any) -> None:
        """There is no selector."""

    def _write_to_self(self) -> None:
        """There is no selector to wake."""


def _has_other_threads() -> bool:
    """Whether a thread runs that may belong to the application."""
    return any(
        not each.name.startswith(_OWN_THREADS)
        for each in threading.enumerate()
        if each is not threading.current_thread()
    )
