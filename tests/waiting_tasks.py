"""The report of a test that did not end in time lists the tasks of asyncio and where each of them waits.

The stack of pytest-timeout ends in the event loop, so it does not show what the test waits for.
"""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Generator, Iterator
from types import FrameType
from typing import Any

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(item: pytest.Item) -> Generator[None, object, object]:
    """List the tasks in the handler of the signal: before the report of a teardown is made, other fixtures end the tasks."""
    result = yield
    fail = signal.getsignal(signal.SIGALRM)
    if callable(fail):

        def list_and_fail(number: int, frame: FrameType | None) -> None:
            __tracebackhide__ = True
            item.add_report_section("all", "tasks that wait", waiting_tasks())
            fail(number, frame)

        signal.signal(signal.SIGALRM, list_and_fail)
    return result


def waiting_tasks() -> str:
    """Each task of this process that has not ended, with the line of each function that waits, the outermost one first."""
    tasks = [each for each in gc.get_objects() if isinstance(each, asyncio.Task) and not each.done()]
    return "\n".join(f"{task.get_name()}: {' > '.join(_places(task.get_coro()))}" for task in tasks) or "none"


def _places(awaited: Any) -> Iterator[str]:
    while awaited is not None:
        frame, following = _frame_of(awaited)
        if frame is not None:
            yield f"{frame.f_code.co_name} ({frame.f_code.co_filename}:{frame.f_lineno})"
        awaited = following


def _frame_of(awaited: Any) -> tuple[Any, Any]:
    """The frame of a coroutine or generator, and what it waits for."""
    for kind in ("cr", "ag", "gi"):
        if hasattr(awaited, f"{kind}_frame"):
            following = "gi_yieldfrom" if kind == "gi" else f"{kind}_await"
            return getattr(awaited, f"{kind}_frame"), getattr(awaited, following, None)
    return None, None
