"""SIGINT and SIGTERM: the first asks to stop, the second ends the process at once.

Ending at once is safe at any moment: what runs is held by leases, and the store
does not depend on how a process ends.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING

from heliograph.cli.errors import INTERRUPTED

if TYPE_CHECKING:
    import asyncio

AGENT_THREADS = "heliograph agent"  # the name that world_real.py gives the threads of plain functions


@contextmanager
def graceful(on_first: Callable[[int], None]) -> Iterator[asyncio.Event]:
    """An event that the first signal sets, after `on_first` with its number. For the main thread of a running loop.

    Handlers of the interpreter and not of the loop: an agent that blocks the loop must not keep the second from us.
    """
    import asyncio  # late: whoever asks for --help waits for nothing

    loop, stopping = asyncio.get_running_loop(), asyncio.Event()
    seen: list[int] = []

    def caught(number: int, _frame: FrameType | None) -> None:
        if seen:
            leave(INTERRUPTED)
        seen.append(number)
        loop.call_soon_threadsafe(stop, number)

    def stop(number: int) -> None:
        on_first(number)
        stopping.set()

    before = {number: signal.signal(number, caught) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def leave(code: int) -> None:
    """End the process now, without waiting for anything."""
    with suppress(OSError, ValueError):
        if sys.stdout.isatty():
            os.write(1, b"\x1b[?25h\n")  # a live view hides the cursor
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def leave_threads_behind(code: int) -> None:
    """End the process if an agent's thread is still at work: it was given up, and the interpreter would wait for it."""
    if any(thread.name.startswith(AGENT_THREADS) for thread in threading.enumerate()):
        leave(code)
