"""A function as a harness: for a model without a library, a private gateway, or a rule in place of a model."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from heliograph.errors import HarnessError, InvalidInput, format_exception, safe_repr
from heliograph.ports import Chunk, ModelReply, ModelRequest


class FunctionHarness:
    """A harness that replies with the result of `function(request)`: a text, or a ModelReply with tool calls and usage.

    The function may be plain or async; a plain function runs in its own thread. `model` is the name in the log. Exceptions
    fail the turn, except HarnessError(recoverable=True) and OSError (such as a time-out or a lost connection): these defer
    the turn, which then calls the function again.
    """

    def __init__(
        self, function: Callable[[ModelRequest], str | ModelReply | Awaitable[str | ModelReply]], *, model: str | None = None
    ):  # fmt: skip
        if not callable(function) or isinstance(function, type):
            raise InvalidInput(
                f"FunctionHarness takes a function of the request, not {safe_repr(function)}", code="wrong_type"
            )
        self._function = function
        self._model = model or str(getattr(function, "__name__", type(function).__name__))

    @property
    def model(self) -> str:
        return self._model

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        try:
            answer = await self._answer(request)
        except HarnessError:
            raise
        except Exception as error:
            raise HarnessError(
                f"{self.model}: {format_exception(error)}", recoverable=isinstance(error, OSError)
            ) from error
        reply = ModelReply(answer) if isinstance(answer, str) else answer
        if not isinstance(reply, ModelReply):
            raise HarnessError(f"{self.model} returned {safe_repr(answer)}; it returns a text or a ModelReply")
        yield reply

    async def _answer(self, request: ModelRequest) -> Any:
        if inspect.iscoroutinefunction(self._function):
            return await self._function(request)
        answer = await _in_thread(self._function, request)
        return await answer if inspect.isawaitable(answer) else answer


async def _in_thread(function: Callable[[ModelRequest], Any], request: ModelRequest) -> Any:
    """Call `function` in its own thread: slow calls would fill a pool, whose threads would keep the process from ending."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()

    def settle(set_it: Callable[[Any], None], value: Any) -> None:
        if not done.done():  # it may have been cancelled
            set_it(value)

    def run() -> None:
        try:
            outcome: tuple[Callable[[Any], None], Any] = done.set_result, function(request)
        except StopIteration as error:  # a future cannot hold a StopIteration
            outcome = done.set_exception, RuntimeError(f"StopIteration left the function: {error}")
        except BaseException as error:  # it propagates to the waiting task
            outcome = done.set_exception, error
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, *outcome)

    threading.Thread(target=run, name="heliograph model", daemon=True).start()
    return await done
