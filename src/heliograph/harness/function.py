"""A plain function as a harness: for a model that no library knows, a gateway of one's own, or a rule that needs no model."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from heliograph.errors import HarnessError, InvalidInput, format_exception, safe_repr
from heliograph.ports import Chunk, ModelReply, ModelRequest


class FunctionHarness:
    """Answers with what `function` makes of the ModelRequest: a text, or a ModelReply with calls of tools and usage.

    The function may be plain or async; a plain one runs in a thread of its own. `model` is the name that the log shows.
    What it raises ends the turn as failed, but a HarnessError(recoverable=True), and an OSError such as a time-out or a lost
    connection, put it off and ask again.
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
    """In a thread of its own: a pool would be full of slow answers, and its threads would keep the process from ending."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()

    def settle(set_it: Callable[[Any], None], value: Any) -> None:
        if not done.done():  # nobody has stopped waiting for it
            set_it(value)

    def run() -> None:
        try:
            outcome: tuple[Callable[[Any], None], Any] = done.set_result, function(request)
        except StopIteration as error:  # no future can carry one
            outcome = done.set_exception, RuntimeError(f"StopIteration left the function: {error}")
        except BaseException as error:  # it belongs to whoever waits
            outcome = done.set_exception, error
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, *outcome)

    threading.Thread(target=run, name="heliograph model", daemon=True).start()
    return await done
