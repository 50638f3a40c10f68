"""Run the code of users so that it can raise only exceptions that the runtime handles, and only where it is awaited."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from heliograph.error_text import format_exception
from heliograph.errors import TurnTimedOut
from heliograph.turn.interruptions import Interruption

T = TypeVar("T")


def settle(future: concurrent.futures.Future[T], function: Callable[..., T], *args: object) -> None:
    """Settle `future` with the result or the exception of `function(*args)`."""
    if not future.set_running_or_notify_cancel():  # cancelled before the start; from here on it cannot be
        return
    try:
        result = function(*args)
    except (StopIteration, GeneratorExit) as error:  # a future cannot raise these
        future.set_exception(RuntimeError(f"the function raised {type(error).__name__}: {error}"))
    except BaseException as error:  # raised where the result is awaited
        future.set_exception(error)
    else:
        future.set_result(result)


async def within(seconds: float | None, work: Awaitable[T]) -> T:
    """`World.within` for any event loop, so that real and simulated worlds behave the same."""
    scope, mine = asyncio.timeout(seconds), asyncio.current_task()
    try:
        async with scope:
            return await work
    except GeneratorExit:
        if _running() is mine:  # a running coroutine cannot be closed, so the work raised it
            raise RuntimeError("the function raised GeneratorExit") from None
        raise
    except asyncio.CancelledError:
        if mine is not None and not mine.cancelling():  # this task was not cancelled, so the work raised it
            raise RuntimeError("it was cancelled from within") from None
        raise
    except TimeoutError:
        if scope.expired():  # a TimeoutError of the work itself propagates
            raise TurnTimedOut(f"it took longer than {seconds:g} s") from None
        raise
    except (Exception, BaseExceptionGroup, SystemExit, KeyboardInterrupt, Interruption):
        raise
    except BaseException as error:  # of a library, unknown to the runtime's handlers
        raise RuntimeError(f"the function raised {format_exception(error)}") from error


def _running() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no loop runs
        return None
