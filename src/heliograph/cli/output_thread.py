"""Print in a thread: a pipe or terminal that accepts no output must not stop the turns that this process runs."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from functools import partial

from heliograph.cli.output import flush
from heliograph.cli.run_views import View
from heliograph.ledger.rows import TurnRow
from heliograph.signals.model import Signal

CALLS_MAX = 500  # that wait to be printed; the reader of the log waits for more room, and other calls are few
CLOSE_SECONDS = 5.0


class OutputThread:
    """A view whose methods return at once, and run in one thread, in their order. Make it in the event loop.

    A method raises the error of an earlier one, such as OutputClosed; nothing is printed after it.
    """

    def __init__(self, view: View):
        self._view = view
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._waiting = 0
        self._awaited: int | None = None  # how many calls may be left when the loop is woken
        self._error: Exception | None = None
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        threading.Thread(target=self._print, name="heliograph output", daemon=True).start()

    def show(self, signal: Signal) -> None:
        self._add(partial(self._view.show, signal))

    def see_turns(self, turns: Sequence[TurnRow]) -> None:
        if self._waiting < CALLS_MAX:  # the next ones replace them
            self._add(partial(self._view.see_turns, turns))

    def note(self, text: str) -> None:
        self._add(partial(self._view.note, text))

    def warn(self, text: str) -> None:
        self._add(partial(self._view.warn, text))

    def prompt(self, text: str) -> None:
        self._add(partial(self._view.prompt, text))

    def resume(self) -> None:
        self._add(self._view.resume)

    async def ready(self) -> None:
        """Wait until there is room for a signal. Raises OutputClosed, OutputFailed."""
        await self._until(CALLS_MAX)

    async def drained(self) -> None:
        """Wait until everything is printed, and close the view; further calls are allowed. Raises OutputClosed, OutputFailed."""
        self._add(self._view.close)
        await self._until(0)

    async def close(self) -> None:
        """Like `drained`, but for at most CLOSE_SECONDS, and without raising."""
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self.drained()
        except Exception:
            return

    def _add(self, call: Callable[[], None]) -> None:
        if self._error is not None:
            raise self._error
        if not self._waiting:
            # the output accepts text: show what agents have printed. Here the event loop prints nothing else
            flush()
        with self._lock:
            self._waiting += 1
        self._calls.put(call)

    async def _until(self, most: int) -> None:
        while True:
            with self._lock:
                if self._error is not None:
                    raise self._error
                if self._waiting <= most:
                    return
                self._awaited = most
                self._changed.clear()
            await self._changed.wait()

    def _print(self) -> None:
        while self._error is None:
            call, error = self._calls.get(), None
            try:
                call()
            except Exception as raised:
                error = raised
            with self._lock:
                self._waiting -= 1
                self._error = error
                is_awaited = self._awaited is not None and (error is not None or self._waiting <= self._awaited)
                if is_awaited:
                    self._awaited = None
            if is_awaited and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._changed.set)
