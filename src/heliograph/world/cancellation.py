"""The end of tasks that may ignore a cancellation."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

log = logging.getLogger("heliograph")

_CANCEL_SECONDS, _CANCELS_MAX = 0.2, 25


async def cancel(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait for their end. A task that continues is cancelled again, for five seconds at most.

    Libraries lose cancellations: nats-py while it flushes, `asyncio.wait_for` of Python 3.11 if its result comes at that moment. Functions of
    users may ignore them all: such a task is abandoned, with a warning.
    """
    left = {task for task in tasks if not task.done()}
    for _ in range(_CANCELS_MAX):
        if not left:
            return
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=_CANCEL_SECONDS)
    log.warning(
        "these tasks ignored their cancellation, and are abandoned: %s",
        ", ".join(sorted(task.get_name() for task in left)),
    )
