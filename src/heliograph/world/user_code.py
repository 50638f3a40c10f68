"""Run the code of users so that it can raise only exceptions that the runtime handles, and only where it is awaited."""

from __future__ import annotations

import asyncio
import concurrent.futures
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
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
    """`World.within` for any event loop, so that real and simulated worlds behave the same.

    Most work ends before it waits for anything. So the timer is only made when a coroutine has waited for the first time.
    """
    mine: asyncio.Task[Any] | None = None  # of work that has waited
    scope: asyncio.Timeout | None = None
    try:
        if isinstance(work, types.CoroutineType):
            ends_at = None if seconds is None else asyncio.get_running_loop().time() + seconds
            try:
                first = work.send(None)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            mine = asyncio.current_task()
            scope, work = asyncio.timeout_at(ends_at), _rest(work, first)
        else:
            mine = asyncio.current_task()
            scope = asyncio.timeout(seconds)
        async with scope:
            return await work
    except GeneratorExit:
        if mine is None or _running() is mine:  # a running coroutine cannot be closed, so the work raised it
            raise RuntimeError("the function raised GeneratorExit") from None
        raise
    except asyncio.CancelledError:
        mine = mine or asyncio.current_task()
        if mine is not None and not mine.cancelling():  # this task was not cancelled, so the work raised it
            raise RuntimeError("it was cancelled from within") from None
        raise
    except TimeoutError:
        if scope is not None and scope.expired():  # a TimeoutError of the work itself propagates
            raise TurnTimedOut(f"it took longer than {seconds:g} s") from None
        raise
    except (Exception, BaseExceptionGroup, SystemExit, KeyboardInterrupt, Interruption):
        raise
    except BaseException as error:  # of a library, unknown to the runtime's handlers
        raise RuntimeError(f"the function raised {format_exception(error)}") from error


@types.coroutine
def _rest(work: Coroutine[Any, Any, T], waits_for: Any) -> Generator[Any, Any, T]:
    """The rest of a coroutine that waits for the first time. waits_for: what it yielded.

    It is delegated to, as `await` does. What the first wait raises is thrown into it outside the `except`, so that the code of the
    user finds no exception in progress after it has handled this one.
    """
    while True:
        try:
            yield waits_for
        except GeneratorExit:
            work.close()
            raise
        except BaseException as error:
            raised = error
        else:
            return (yield from work.__await__())
        try:
            waits_for = work.throw(raised)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        finally:
            del raised  # its traceback has this frame


def _running() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no loop runs
        return None
