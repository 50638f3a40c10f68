"""An event loop without a clock and without IO: virtual time, seeded scheduling, processes that can die.

One ready callback runs per turn, chosen by the plan; when none is ready, time
jumps to the next timer. Tasks belong to a `Process`. A killed process runs no
further line, not even a `finally`, as after `kill -9`; a frozen one runs nothing
until it thaws, as between SIGSTOP and SIGCONT, while its timers go on.
"""

from __future__ import annotations

import asyncio
import heapq
from asyncio import base_events
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import suppress
from typing import Any


class SimDeadlock(RuntimeError):
    """Nothing is ready and no timer is set, so the awaited event never happens."""


class Process:
    """A group of tasks that a kill ends together. ended: done once the process was killed."""

    def __init__(self, name: str, ended: asyncio.Future[None]):
        self.name = name
        self.ended = ended
        self.is_dead = False
        self.is_frozen = False
        self.frozen_callbacks: list[asyncio.Handle] = []  # callbacks that became ready while it was frozen


class SimLoop(base_events.BaseEventLoop):
    """The loop. choose: `choose(n)` returns the index of the ready callback, of n, that runs next."""

    _ready: deque[asyncio.Handle]
    _scheduled: list[Any]

    def __init__(self, choose: Callable[[int], int]):
        super().__init__()
        self.steps = 0
        self._choose = choose
        self._now = 0.0
        self._owners: dict[asyncio.Task[Any], Process] = {}
        self.set_exception_handler(lambda loop, context: None)

    def time(self) -> float:
        return self._now

    def open_process(self, name: str) -> Process:
        return Process(name, self.create_future())

    def spawn(self, process: Process, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self.create_task(work, name=name)
        self._owners[task] = (
            process  # also keeps a reference: Python would run the `finally` blocks of a collected task
        )
        return task

    def kill(self, process: Process) -> None:
        """Kill a process: its tasks never run again. A caller that is one of them must await something next."""
        process.is_dead = True
        if not process.ended.done():
            process.ended.set_result(None)

    def freeze(self, process: Process, seconds: float) -> None:
        if not process.is_frozen:
            process.is_frozen = True
            self.call_later(seconds, self._thaw, process)

    def drop_everything(self) -> None:
        """End all coroutines. Their processes are dead, so their `finally` blocks have no effect."""
        for process in self._owners.values():
            process.is_dead = True
        for task in [*self._owners, *asyncio.all_tasks(self)]:
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # it was dropped on purpose
            coroutine = task.get_coro()
            if not task.done() and isinstance(coroutine, Coroutine):
                with suppress(BaseException):
                    coroutine.close()
        self._ready.clear()
        self._scheduled.clear()

    def _thaw(self, process: Process) -> None:
        process.is_frozen = False
        self._ready.extend(process.frozen_callbacks)
        process.frozen_callbacks.clear()

    def _run_once(self) -> None:
        ready = self._ready
        if not ready:
            self._pass_time()
        count = len(ready)
        chosen = self._choose(count) if count > 1 else 0
        ready.rotate(-chosen)
        handle = ready.popleft()
        ready.rotate(chosen)
        self.steps += 1
        if handle.cancelled():
            return
        process = self._owners.get(getattr(handle._callback, "__self__", None))  # type: ignore[attr-defined, arg-type]
        if process is not None and process.is_dead:
            return
        if process is not None and process.is_frozen:
            process.frozen_callbacks.append(handle)
            return
        handle._run()
        self._ran(handle, process)

    def _ran(self, handle: asyncio.Handle, process: Process | None) -> None:
        """Called after each callback. process: None if it belongs to no process."""

    def _pass_time(self) -> None:
        """Advance the time to the next timer, and move all timers of that time to the ready callbacks."""
        timers = self._scheduled
        while timers and (not self._ready or timers[0]._when <= self._now):
            timer = heapq.heappop(timers)
            timer._scheduled = False
            if not timer.cancelled():
                self._now = max(self._now, timer._when)
                self._ready.append(timer)
        if not self._ready:
            raise SimDeadlock("nothing is ready and no timer is set")

    def _process_events(self, event_list: Any) -> None:
        """There is no selector."""

    def _write_to_self(self) -> None:
        """There is no selector to wake."""

    def _asyncgen_finalizer_hook(self, agen: AsyncGenerator[Any, Any]) -> None:
        """Drop an abandoned generator: closing it would add a task that the plan did not schedule."""
