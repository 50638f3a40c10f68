"""Names for the asyncio tasks that an agent's function starts; the names are the same in every run of the function.

The order of calls identifies a call, but parallel tasks have no common order. In the first run, a task continues when its
step ends; in a later run it continues at once, because the result is recorded. So each task counts its own calls, and its
name is the first part of their ids. The name of a task consists of the name of the task that started it, the name of its
coroutine, and a count: the second `chain` is `chain_2-`, and the first `part` that it starts is `chain_2-part_1-`. The tasks
of a step have no name and cannot make calls, because a step does not run again.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable
from contextvars import ContextVar
from functools import cached_property
from hashlib import blake2s
from typing import Any
from weakref import WeakKeyDictionary, ref

from heliograph.execution.step_outcome import is_inside_step

_LABEL_MAX = 16
_NAME_MAX = 40  # characters; a call id has at most 64
_NO_WORD_CHARACTER = re.compile(r"\W", re.ASCII)
_current_run: ContextVar[TaskNames | None] = ContextVar("heliograph_task_names", default=None)
_run_of_task: WeakKeyDictionary[Any, TaskNames] = WeakKeyDictionary()  # for tasks with a context of their own
# the creator and the name of a task that starts now: an eager task runs before it is registered, and a thread has no task
_starting: ContextVar[tuple[Any, str] | None] = ContextVar("heliograph_starting", default=None)


class TaskNames:
    """The task names of one run of a function. The task that creates this object runs the function; its name is empty."""

    def __init__(self) -> None:
        self._first = ref(asyncio.current_task())
        _current_run.set(self)
        _starting.set(None)
        _install_factory(asyncio.get_running_loop())

    @cached_property  # most functions start no task
    def _names(self) -> WeakKeyDictionary[Any, str]:
        return WeakKeyDictionary()

    @cached_property
    def _started(self) -> WeakKeyDictionary[Any, Counter[str]]:
        return WeakKeyDictionary()

    def current(self) -> str:
        """The name of the current task; in a thread, the name of the task that started it."""
        task = _task()
        if task is not None and task is self._first():
            return ""
        starting = _starting.get()
        if task is not None and task in self._names:
            return self._names[task]
        return "" if starting is None or starting[0] is task else starting[1]

    def next(self, creator: Any, coro: Any) -> str:
        """The name of the next task that `creator` starts for this coroutine."""
        label = _NO_WORD_CHARACTER.sub("_", getattr(coro, "__name__", "task"))[:_LABEL_MAX]
        started = self._started.setdefault(creator, Counter())
        started[label] += 1
        name = f"{self.current()}{label}_{started[label]}-"
        return name if len(name) <= _NAME_MAX else f"{blake2s(name.encode(), digest_size=10).hexdigest()}-"

    def assign(self, task: Any, name: str) -> None:
        self._names[task] = name
        _run_of_task[task] = self


def _install_factory(loop: asyncio.AbstractEventLoop) -> None:
    """Name the tasks that this loop starts from now on; the previous task factory still creates them."""
    previous = loop.get_task_factory()
    if getattr(previous, "names_tasks", False):
        return

    def make(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> Any:
        names = _current_run.get()
        if names is None and not _run_of_task:  # no agent's function is at work in this context
            return _create(previous, loop, coro, options)
        creator, starting = _task(), _starting.get()
        names = names or (None if creator is None else _run_of_task.get(creator))
        is_named = starting is not None and starting[0] is creator  # a factory around this one named it
        if names is None or creator is None or is_named or is_inside_step():
            return _create(previous, loop, coro, options)
        name = names.next(creator, coro)
        token = _starting.set((creator, name))
        try:
            task = _create(previous, loop, coro, options)
        finally:
            _starting.reset(token)
        names.assign(task, name)
        return task

    make.names_tasks = True  # type: ignore[attr-defined]  # a mark, so that each turn finds out quickly
    loop.set_task_factory(make)


def _create(
    factory: Callable[..., Any] | None, loop: asyncio.AbstractEventLoop, coro: Any, options: dict[str, Any]
) -> Any:
    return asyncio.Task(coro, loop=loop, **options) if factory is None else factory(loop, coro, **options)


def _task() -> Any:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no loop runs here
        return None
