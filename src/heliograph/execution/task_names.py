"""Names for the tasks that an agent's function starts, so that a call is known by its place in its own task.

The order of calls identifies them, but parallel tasks have no common order: in the first run, a task continues when its step
ends; in a later run it continues at once, because the result is recorded. So each task counts its own calls. Its name
consists of the name of the task that started it, the name of its coroutine, and a count: the second `chain` is `chain_2-`,
and the first `part` that it starts is `chain_2-part_1-`. Names are the same in every run. The tasks of a step have no name
and cannot make calls, because a step does not run again.
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

from heliograph.execution.step_outcome import is_inside_step

_LABEL_MAX = 16
_NAME_MAX = 40  # characters; a call id has at most 64
_STRANGE = re.compile(r"\W", re.ASCII)
_of: ContextVar[Branches | None] = ContextVar("heliograph_branches", default=None)
_of_tasks: WeakKeyDictionary[Any, Branches] = WeakKeyDictionary()  # for tasks with a context of their own
# the creator of a task that starts now, and its name: an eager task runs before it is registered, a thread has no task
_starting: ContextVar[tuple[Any, str] | None] = ContextVar("heliograph_starting", default=None)
_factories: WeakSet[Callable[..., Any]] = WeakSet()  # the task factories that name tasks


class Branches:
    """The task names of one run of a function. The task that creates this object runs the function; its name is empty."""

    def __init__(self) -> None:
        self._names: WeakKeyDictionary[Any, str] = WeakKeyDictionary({_task(): ""})
        self._started: WeakKeyDictionary[Any, Counter[str]] = WeakKeyDictionary()
        _of.set(self)
        _starting.set(None)
        _watch(asyncio.get_running_loop())

    def name(self) -> str:
        """The name of the current task; in a thread, the name of the task that started it."""
        task, starting = _task(), _starting.get()
        if task is not None and task in self._names:
            return self._names[task]
        return "" if starting is None or starting[0] is task else starting[1]

    def next(self, creator: Any, coro: Any) -> str:
        """The name of the next task that `creator` starts for this coroutine."""
        label = _STRANGE.sub("_", getattr(coro, "__name__", "task"))[:_LABEL_MAX]
        started = self._started.setdefault(creator, Counter())
        started[label] += 1
        name = f"{self.name()}{label}_{started[label]}-"
        return name if len(name) <= _NAME_MAX else f"{blake2s(name.encode(), digest_size=10).hexdigest()}-"

    def keep(self, task: Any, name: str) -> None:
        self._names[task] = name
        _of_tasks[task] = self


def _watch(loop: asyncio.AbstractEventLoop) -> None:
    """Name the tasks that this loop starts; the previous task factory still creates them."""
    made = loop.get_task_factory()
    if made in _factories:
        return

    def make(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> Any:
        creator, starting = _task(), _starting.get()
        branches = _of.get() or (None if creator is None else _of_tasks.get(creator))
        is_named = starting is not None and starting[0] is creator  # a factory around this one named it
        if branches is None or creator is None or is_named or is_inside_step():
            return _make(made, loop, coro, options)
        name = branches.next(creator, coro)
        token = _starting.set((creator, name))
        try:
            task = _make(made, loop, coro, options)
        finally:
            _starting.reset(token)
        branches.keep(task, name)
        return task

    _factories.add(make)
    loop.set_task_factory(make)


def _make(made: Callable[..., Any] | None, loop: asyncio.AbstractEventLoop, coro: Any, options: dict[str, Any]) -> Any:
    return asyncio.Task(coro, loop=loop, **options) if made is None else made(loop, coro, **options)


def _task() -> Any:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no loop runs here
        return None
