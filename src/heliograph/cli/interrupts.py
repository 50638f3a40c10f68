"""SIGINT and SIGTERM: the first signal requests a stop, the second ends the process at once.

Ending at once is always safe: leases expire, and other workers take over the turns.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

from heliograph.cli.early_signals import INTERRUPTED

if TYPE_CHECKING:
    import asyncio

log = logging.getLogger("heliograph.cli")

SETTLE_SECONDS = 2.0
AGENT_THREADS = "heliograph agent"  # world/real.py gives this name to the threads of plain functions


@contextmanager
def graceful(on_first: Callable[[int], None]) -> Iterator[asyncio.Event]:
    """An event that the first signal sets, after `on_first` with its number. For the main thread of a running loop.

    These handlers belong to the interpreter, not the loop: the second signal works even when an agent blocks the loop.
    """
    import asyncio  # late: `helio --help` does without it

    loop, stopping = asyncio.get_running_loop(), asyncio.Event()
    seen: list[int] = []

    def caught(number: int, _frame: FrameType | None) -> None:
        if seen:
            exit_process(INTERRUPTED)
        seen.append(number)
        loop.call_soon_threadsafe(stop, number)

    def stop(number: int) -> None:
        on_first(number)
        stopping.set()

    with restored_handlers():
        signal.signal(signal.SIGTERM, caught)
        if (
            signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
        ):  # it runs in the background: Ctrl-C is for another process
            signal.signal(signal.SIGINT, caught)
        yield stopping


@contextmanager
def restored_handlers() -> Iterator[None]:
    """Restore the handlers of SIGINT and SIGTERM at the end of the block. Only the main thread may change handlers."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in before.items():
                if handler is not None:  # None: not installed from Python, and nothing here replaces it
                    signal.signal(number, handler)


def exit_on_signals(code_at_sigterm: int) -> None:
    """Until `graceful` takes over, SIGTERM ends the process with `code_at_sigterm`, SIGINT with 130: it owns no turn yet.

    KeyboardInterrupt would not do: Python drops an exception that a weak reference's callback raises, during an import too.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda _number, _frame: exit_process(code_at_sigterm))
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, lambda _number, _frame: exit_process(INTERRUPTED))


def end_within(seconds: float, code: int) -> None:
    """End the process after a time, if it still runs then. A PostgreSQL that does not respond delays its end no longer."""
    import asyncio

    asyncio.get_running_loop().call_later(seconds, _exit_late, code)


def _exit_late(code: int) -> None:
    log.warning("the process ends before everything is closed, because something does not respond, for example PostgreSQL; other workers "
                "claim its turns when their leases end")  # fmt: skip
    exit_process(code)


def exit_process(code: int) -> None:
    """End the process now, without waiting for anything."""
    try:
        if sys.stdout.isatty():
            os.write(1, b"\x1b[?25h\n")  # a live view hides the cursor
        sys.stdout.flush()
        sys.stderr.flush()
    finally:  # a flush fails when the signal interrupts a write
        os._exit(code)


# Loops kept open, with tasks that ignored their cancellation: a loop holds tasks weakly and warns about lost ones.
_loops_at_work: list[tuple[asyncio.Runner, set[asyncio.Task[Any]]]] = []


def run_agents(work: Coroutine[Any, Any, int]) -> int:
    """Like `asyncio.run`, on uvloop, but abandon tasks that ignore cancellation. See `exit_past_agents`."""
    import asyncio

    from heliograph.world.event_loop import new_event_loop

    runner = asyncio.Runner(loop_factory=new_event_loop)
    try:
        return runner.run(work)
    finally:
        if at_work := runner.get_loop().run_until_complete(_cancelled()):
            _loops_at_work.append((runner, at_work))
        else:
            runner.close()


async def _cancelled() -> set[asyncio.Task[Any]]:
    """Cancel the remaining tasks and return those that do not end."""
    import asyncio

    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    return (await asyncio.wait(tasks, timeout=SETTLE_SECONDS))[1] if tasks else set()


def exit_past_agents(code: int) -> None:
    """End the process if an abandoned agent still runs; the interpreter would wait for its thread."""
    if _loops_at_work or any(thread.name.startswith(AGENT_THREADS) for thread in threading.enumerate()):
        exit_process(code)
