"""Cancel tasks whose code may ignore a cancellation."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

log = logging.getLogger("heliograph")

_CANCEL_SECONDS, _CANCELS_MAX = 0.2, 25


async def cancel(
    tasks: Iterable[asyncio.Task[Any]], again_seconds: float | None = None, times: int = _CANCELS_MAX
) -> None:
    """Cancel tasks and wait for their end. A task that continues is cancelled again, at most `times` times in all.

    Libraries lose cancellations: nats-py while it flushes, `asyncio.wait_for` of Python 3.11 if its result comes at that moment. Functions of
    users may ignore them all: such a task is abandoned, with a warning. Errors that end a cancelled task are discarded.
    again_seconds: the time for the cleanup of a task, before it is cancelled again; 0.2 by default.
    """
    cancelled = left = {task for task in tasks if not task.done()}
    for _ in range(times):
        if not left:
            break
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=_CANCEL_SECONDS if again_seconds is None else again_seconds)
    for task in cancelled - left:
        if not task.cancelled():
            task.exception()  # marked as retrieved
    if left:
        names = ", ".join(sorted(task.get_name() for task in left))
        log.warning(
            "these tasks ignored their cancellation, and are abandoned: %s; code that catches CancelledError has to raise it again",
            names,
        )
