"""Names for the tasks that an agent's function starts, so that a call is known by its place in its own task.

Calls are known by their order. Between tasks that run side by side there is none: on the first run a task goes on when its
step is done, and when the function is run again as soon as it is asked, since the result is recorded. So each task counts
for itself. It is named when it first asks for something: `t1-`, `t2-`, and what it starts itself `t1-t1-`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextvars import ContextVar
from typing import Any

# who gave the name, the task that has it, and the name; a task inherits that of the one that started it
_named: ContextVar[tuple[Branches, asyncio.Task[Any] | None, str] | None] = ContextVar("branch", default=None)


class Branches:
    """Of one run of a function. The task that makes this is the one that the function runs in: its name is empty."""

    def __init__(self) -> None:
        self._root = _task()
        self._started: Counter[str] = Counter()

    def name(self) -> str:
        """That of the current task; where there is none, as in a thread, that of the task which started it."""
        task, known = _task(), _named.get()
        owner, name = (self._root, "") if known is None or known[0] is not self else known[1:]
        if task is None or task is owner:
            return name
        self._started[name] += 1
        name = f"{name}t{self._started[name]}-"
        _named.set((self, task, name))
        return name


def _task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no loop runs here
        return None
