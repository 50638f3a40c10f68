"""Handlers of control signals: one per type, each with one async method `handle`.

A deployment combines them, for example with a fallback for tools:

    handlers = SignalHandlers({
        "tool_call": FallbackHandler(ToolCallHandler(tools), ToolCallHandler(offline_tools)),
        "delegation": DelegationHandler(agents),
    })
"""

from __future__ import annotations

import asyncio
import inspect
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from heliograph.codes import DELEGATION_ERROR, DELEGATION_TIMEOUT, TOOL_ERROR, TOOL_TIMEOUT, UNKNOWN
from heliograph.control.payloads import (
    DelegationPayload,
    DelegationResponsePayload,
    ErrorPayload,
    Failure,
    ToolCallPayload,
    ToolCallResponsePayload,
)
from heliograph.control.signals import (
    ControlSignal,
    DelegationResponse,
    DelegationSignal,
    ErrorSignal,
    ToolCallResponse,
    ToolCallSignal,
    WireSignal,
    control_type,
    read_signal,
)
from heliograph.error_text import exception_text, is_recoverable, safe_repr
from heliograph.errors import HeliographError, InvalidInput, NotFound
from heliograph.signals.payload import cleaned

__all__ = ["DelegationHandler", "FallbackHandler", "SignalHandler", "SignalHandlers", "ToolCallHandler"]

_MESSAGE_MAX = 16_384


class Registry(Protocol):
    """Finds a tool or an agent by its name: a dict, or any object whose `get` may be async."""

    def get(self, name: str, /) -> Any: ...


class SignalHandler(ABC):
    """Handles the control signals of one type."""

    @abstractmethod
    async def handle(self, signal: Any) -> WireSignal | Mapping[str, Any]:
        """Handle a signal, and return the response, as a model or as a mapping in wire form."""


class SignalHandlers(SignalHandler):
    """Passes each signal to the handler of its type, and validates the response."""

    def __init__(self, handlers: Mapping[str, SignalHandler]):
        """Raises InvalidInput (`unknown_signal_type`) for a name that is none of the six types."""
        for name in handlers:
            control_type(name, f"/{name}")
        self._handlers = dict(handlers)

    async def handle(self, signal: ControlSignal) -> WireSignal:
        """Return the response of the handler.

        Raises NotFound (`no_handler`), InvalidInput for an invalid response, and the errors of the handler.
        """
        handler = self._handlers.get(signal.type)
        if handler is None:
            raise NotFound(f"no handler for {signal.type}; there are handlers for {', '.join(self._handlers) or 'no type'}",
                           code="no_handler")  # fmt: skip
        return as_response(await handler.handle(signal))


class ToolCallHandler(SignalHandler):
    """Executes the tool that a `tool_call` names, within the signal's timeout. A failure is a response, never an exception.

    tools: by name; functions, Tools, or objects with a method `execute(parameters)`. Plain functions run in a thread.
    monotonic: the clock for durations, in seconds.
    """

    def __init__(self, tools: Registry, monotonic: Callable[[], float] = time.monotonic):
        self.registry = tools
        self._monotonic = monotonic

    async def handle(self, signal: ToolCallSignal) -> ToolCallResponse:
        payload, started = signal.payload, self._monotonic()
        try:
            tool = await _found(self.registry, payload.tool_name, "tool")
            result = await _within(signal.timeout_seconds, lambda: _execute(tool, payload.parameters))
            return _tool_success(payload, result, self._monotonic() - started)
        except Exception as error:
            return _tool_failure(payload, failure_from(error, TOOL_ERROR, TOOL_TIMEOUT), self._monotonic() - started)


class DelegationHandler(SignalHandler):
    """Passes the task of a `delegation` to the agent that it names, within the signal's timeout.

    agents: by name; objects with a method `execute(task)`, or `execute(task, context=…)` for delegations with a context.
    monotonic: the clock for durations, in seconds.
    """

    def __init__(self, agents: Registry, monotonic: Callable[[], float] = time.monotonic):
        self.registry = agents
        self._monotonic = monotonic

    async def handle(self, signal: DelegationSignal) -> DelegationResponse:
        payload, started = signal.payload, self._monotonic()
        context = {} if payload.context is None else {"context": payload.context}
        try:
            agent = await _found(self.registry, payload.target_agent, "agent")
            result = await _within(signal.timeout_seconds, lambda: agent.execute(payload.task, **context))
            return DelegationResponse(payload=DelegationResponsePayload(
                target_agent=payload.target_agent, correlation_id=payload.correlation_id, status="completed", result=result,
                duration_ms=_milliseconds(self._monotonic() - started),
            ))  # fmt: skip
        except Exception as error:
            return _delegation_failure(
                payload, failure_from(error, DELEGATION_ERROR, DELEGATION_TIMEOUT), self._monotonic() - started
            )


class FallbackHandler(SignalHandler):
    """Calls another handler where the first fails and a retry may help; any other failure becomes an error response.

    A handler fails by raising, or by returning a response with an error.
    """

    def __init__(self, primary: SignalHandler, fallback: SignalHandler):
        self.primary = primary
        self.fallback = fallback

    async def handle(self, signal: ControlSignal) -> WireSignal:
        try:
            response = as_response(await self.primary.handle(signal))
        except Exception as error:
            if not is_recoverable(error):
                return error_response(signal, error)
        else:
            error_of_response = getattr(response.payload, "error", None)
            if error_of_response is None or not error_of_response.recoverable:
                return response
        try:
            return as_response(await self.fallback.handle(signal))
        except Exception as error:
            return error_response(signal, error)


def as_response(response: Any) -> WireSignal:
    """Return a handler's response as a model. Raises InvalidInput for a response that is not a control signal."""
    return response if isinstance(response, WireSignal) else read_signal(response)


def error_response(signal: ControlSignal, error: BaseException) -> WireSignal:
    """Return the response for a signal whose handler raised: the response of its type, or an `error`."""
    payload = signal.payload
    if isinstance(payload, ToolCallPayload):
        return _tool_failure(payload, failure_from(error, TOOL_ERROR, TOOL_TIMEOUT))
    if isinstance(payload, DelegationPayload):
        return _delegation_failure(payload, failure_from(error, DELEGATION_ERROR, DELEGATION_TIMEOUT))
    failure = failure_from(error, UNKNOWN, UNKNOWN)
    return ErrorSignal(
        payload=ErrorPayload(code=failure.code, message=failure.message, recoverable=failure.recoverable)
    )


class _TimedOut(HeliographError):
    """The signal's timeout has passed."""

    recoverable = True


def failure_from(error: BaseException, code: str, timeout_code: str) -> Failure:
    """Describe an exception. `recoverable` is the attribute of the exception, or True if it has none.

    details.reason: the code of one of Heliograph's own errors, for example `unknown_agent`.
    """
    message = cleaned(exception_text(error) or type(error).__name__)
    own = error.code if isinstance(error, HeliographError) and error.code != UNKNOWN else None
    return Failure(code=timeout_code if isinstance(error, _TimedOut) else code, message=message[:_MESSAGE_MAX],
                   recoverable=is_recoverable(error), details=None if own is None else {"reason": own})  # fmt: skip


async def _found(registry: Registry, name: str, what: str) -> Any:
    found = registry.get(name)
    found = await found if inspect.isawaitable(found) else found
    if found is None:
        raise NotFound(f"there is no {what} {safe_repr(name)}; correct the name, or add it to the registry of the handler",
                       code=f"unknown_{what}")  # fmt: skip
    return found


async def _within(seconds: float | None, work: Callable[[], Awaitable[Any]]) -> Any:
    """Await `work`. A TimeoutError of its own propagates; an attempt to end the program becomes an error."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await work()
    except SystemExit as error:
        raise HeliographError(f"it tried to end the program with the exit code {safe_repr(error.code)}") from error
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise _TimedOut(f"no result within {seconds:g} s") from error


async def _execute(tool: Any, parameters: Mapping[str, Any]) -> Any:
    if hasattr(tool, "execute"):
        return await tool.execute(parameters)
    function = getattr(tool, "function", tool)
    if not callable(function):
        raise InvalidInput(f"{safe_repr(tool)} is neither a function nor an object with execute()", code="wrong_type")
    if inspect.iscoroutinefunction(function):
        return await function(**parameters)
    result = await asyncio.to_thread(_call, function, parameters)
    return await result if inspect.isawaitable(result) else result


def _call(function: Callable[..., Any], parameters: Mapping[str, Any]) -> Any:
    """Call a function in a thread. A StopIteration cannot leave it: up to Python 3.11 its awaiter would never wake."""
    try:
        return function(**parameters)
    except StopIteration as error:
        raise RuntimeError("the function raised StopIteration") from error


def _tool_success(payload: ToolCallPayload, result: Any, seconds: float) -> ToolCallResponse:
    return ToolCallResponse(payload=ToolCallResponsePayload(
        tool_name=payload.tool_name, correlation_id=payload.correlation_id, success=True, result=result,
        duration_ms=_milliseconds(seconds),
    ))  # fmt: skip


def _tool_failure(payload: ToolCallPayload, failure: Failure, seconds: float | None = None) -> ToolCallResponse:
    return ToolCallResponse(payload=ToolCallResponsePayload(
        tool_name=payload.tool_name, correlation_id=payload.correlation_id, success=False, error=failure,
        duration_ms=_milliseconds(seconds),
    ))  # fmt: skip


def _delegation_failure(
    payload: DelegationPayload, failure: Failure, seconds: float | None = None
) -> DelegationResponse:
    return DelegationResponse(payload=DelegationResponsePayload(
        target_agent=payload.target_agent, correlation_id=payload.correlation_id, status="failed", error=failure,
        duration_ms=_milliseconds(seconds),
    ))  # fmt: skip


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)
