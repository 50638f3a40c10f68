"""Names for the tasks that an agent's function starts, so that a call is known by its place in its own task.

Calls are known by their order. Between tasks that run side by side there is none: on the first run a task goes on when its
step is done, and when the function is run again as soon as it is asked, since the result is recorded. So each task counts
its calls for itself, and is known by who started it, by the name of its coroutine, and by which of these it was: the second
`chain` is `chain_2-`, and the first `part` that this one starts `chain_2-part_1-`. All of that is the same at every run.
What a step starts is not, since a step is not done again: it has no name, nor can it ask for anything.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable
from contextvars import ContextVar
from hashlib import blake2s
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from heliograph.worker.effect import is_inside_step

_LABEL_MAX = 16
_NAME_MAX = 40  # of a call's id, which has 64 characters at most
_STRANGE = re.compile(r"\W", re.ASCII)
_of: ContextVar[Branches | None] = ContextVar("heliograph_branches", default=None)
_factories: WeakSet[Callable[..., Any]] = WeakSet()  # those that name tasks


class Branches:
    """Of one run of a function. The task that makes this is the one that the function runs in: its name is empty."""

    def __init__(self) -> None:
        self._names: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
        self._started: Counter[tuple[str, str]] = Counter()
        _of.set(self)
        _watch(asyncio.get_running_loop())

    def name(self) -> str:
        """That of the current task; where there is none, or one of another loop, it is empty."""
        task = _task()
        return "" if task is None else self._names.get(task, "")

    def add(self, task: Any) -> None:
        """Name a task that the current one has just started."""
        above = self.name()
        label = _STRANGE.sub("_", getattr(task.get_coro(), "__name__", "task"))[:_LABEL_MAX]
        self._started[above, label] += 1
        name = f"{above}{label}_{self._started[above, label]}-"
        self._names[task] = name if len(name) <= _NAME_MAX else f"{blake2s(name.encode(), digest_size=10).hexdigest()}-"


def _watch(loop: asyncio.AbstractEventLoop) -> None:
    """Have this loop tell of the tasks that are started in it; whoever made its tasks until now still does."""
    made = loop.get_task_factory()
    if made in _factories:
        return

    def make(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> Any:
        task: Any = asyncio.Task(coro, loop=loop, **options) if made is None else made(loop, coro, **options)
        if (branches := _of.get()) is not None and not is_inside_step():
            branches.add(task)
        return task

    _factories.add(make)
    loop.set_task_factory(make)


def _task() -> Any:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no loop runs here
        return None
