"""Use a function as a harness: for a model without a library, for a private gateway, or for a rule instead of a model."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from heliograph.codes import NETWORK_ERROR
from heliograph.error_text import format_exception, is_network_error, safe_repr
from heliograph.errors import HarnessError, InvalidInput
from heliograph.ports import Chunk, ModelReply, ModelRequest


class FunctionHarness:
    """A harness that calls `function(request)` and replies with its result: a text, or a ModelReply with tool calls and usage.

    function: plain or async; a plain function runs in its own thread. An exception fails the turn. HarnessError(recoverable=True)
    and OSError (a timeout or a lost connection, for example) defer the turn instead, which then calls the function again.
    model: the model's name in the log; the function's name by default.
    """

    def __init__(
        self, function: Callable[[ModelRequest], str | ModelReply | Awaitable[str | ModelReply]], *, model: str | None = None
    ):  # fmt: skip
        if not callable(function) or isinstance(function, type):
            raise InvalidInput(
                f"the argument of FunctionHarness must be a function with one argument, the request, not {safe_repr(function)}",
                code="wrong_type",
            )
        self.function = function
        self._model = model or str(getattr(function, "__name__", type(function).__name__))

    @property
    def model(self) -> str:
        return self._model

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        try:
            result = await self._call(request)
        except HarnessError:
            raise
        except Exception as error:
            code = NETWORK_ERROR if is_network_error(error) else None
            raise HarnessError(f"{self.model}: {format_exception(error)}", code=code,
                               recoverable=code is not None or isinstance(error, OSError)) from error  # fmt: skip
        reply = ModelReply(result) if isinstance(result, str) else result
        if not isinstance(reply, ModelReply):
            raise HarnessError(f"{self.model} returned {safe_repr(result)}; it must return a text or a ModelReply")
        yield reply

    async def _call(self, request: ModelRequest) -> Any:
        if inspect.iscoroutinefunction(self.function):
            return await self.function(request)
        result = await _in_thread(self.function, request)
        return await result if inspect.isawaitable(result) else result


async def _in_thread(function: Callable[[ModelRequest], Any], request: ModelRequest) -> Any:
    """Call `function` in its own thread. Slow calls would fill a pool, and a pool's threads would prevent the process from ending."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()

    def settle(set_it: Callable[[Any], None], value: Any) -> None:
        if not done.done():  # it may have been cancelled
            set_it(value)

    def run() -> None:
        try:
            outcome: tuple[Callable[[Any], None], Any] = done.set_result, function(request)
        except StopIteration as error:  # a future does not accept a StopIteration
            outcome = done.set_exception, RuntimeError(f"the function raised StopIteration: {error}")
        except BaseException as error:  # it propagates to the waiting task
            outcome = done.set_exception, error
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, *outcome)

    threading.Thread(target=run, name="heliograph model", daemon=True).start()
    return await done
