"""Run the function of a step and convert its return value or its exception to a result."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

from heliograph.codes import NETWORK_ERROR, TOOL_ERROR, TOOL_TIMEOUT
from heliograph.error_text import format_exception, is_network_error, is_recoverable
from heliograph.errors import HeliographError, InvalidInput, StepInDoubt, ToolFailed, TurnTimedOut
from heliograph.records import CallStatus
from heliograph.redaction import redacted, redacted_text
from heliograph.signals.error_payload import details_of
from heliograph.signals.payload import cleaned, is_longer, with_sorted_keys
from heliograph.signals.values import DOCUMENT_BYTES_MAX, check_size, to_json
from heliograph.turn.calls import CallRequest, CallResult
from heliograph.types import Json, JsonObject
from heliograph.world.seam import World

_CERTAIN = ("pure", "idempotent", "transactional")  # a timeout leaves no doubt for these effects
_AT_ONCE_MAX = 65_536  # bytes; a larger result is converted in a thread
_MESSAGE_MAX = 16_384
_inside: ContextVar[bool] = ContextVar("heliograph_inside_step", default=False)


def is_inside_step() -> bool:
    """Whether the caller is the function of a step, or something that it started."""
    return _inside.get()


async def outcome_of(
    world: World, request: CallRequest, function: Callable[..., Any], args: tuple[Any, ...]
) -> CallResult:
    """Run the function, and return its value or its exception as a result."""
    token = _inside.set(True)
    try:
        value = await world.within(request.timeout_seconds, invoke(world, function, args))
        output = await _to_result(world, value, f"the result of step {request.tool}")
    except TurnTimedOut as error:
        # cancelled in the middle: a `once` effect may have happened
        status: CallStatus = "timeout" if request.effect in _CERTAIN else "unknown"
        return CallResult(request.call_id, status, None, error_of(TOOL_TIMEOUT, error.message, is_recoverable=True))
    except StepInDoubt as error:  # the function lost contact with the system that has the effect
        return CallResult(request.call_id, "unknown", None, error_of(error.code, error.message, is_recoverable=False))
    except HeliographError as error:
        code = (
            error.code if error.code.isupper() or isinstance(error, ToolFailed) else TOOL_ERROR
        )  # a tool chooses its own codes
        return CallResult(
            request.call_id,
            "failed",
            None,
            error_of(code, error.message, is_recoverable=error.recoverable, details=error.details),
        )
    except (
        Exception,
        SystemExit,
        KeyboardInterrupt,
        BaseExceptionGroup,
    ) as error:  # an exit of the program ends this call, not the worker
        return CallResult(
            request.call_id,
            "failed",
            None,
            error_of(
                NETWORK_ERROR if is_network_error(error) else TOOL_ERROR,
                format_exception(error),
                is_recoverable=is_recoverable(error),
            ),
        )
    finally:
        _inside.reset(token)
    return CallResult(request.call_id, "success", output)


def error_of(code: str, message: str, *, is_recoverable: bool, details: Mapping[str, Any] | None = None) -> JsonObject:
    """The recorded error of a call."""
    error: JsonObject = {"code": cleaned(code), "message": _text(message), "recoverable": is_recoverable}
    return {**error, "details": details_of(details)} if details else error


def _text(message: str) -> str:
    """A message without secrets and without characters that the ledger rejects, and not too long."""
    text = redacted_text(message)  # before truncation, because half of a secret is secret
    return cleaned(text if len(text) <= _MESSAGE_MAX else text[: _MESSAGE_MAX - 1] + "…")


async def _to_result(world: World, value: Any, what: str) -> Json:
    """A result as JSON. A thread converts a large one, because the event loop would block meanwhile."""

    def write() -> Json:
        if is_longer(value, DOCUMENT_BYTES_MAX):
            raise InvalidInput(f"{what} has over {DOCUMENT_BYTES_MAX} bytes, which is the limit; store large values "
                               "elsewhere and return their names", code="too_large", path="/output")  # fmt: skip
        output: Json = with_sorted_keys(redacted(to_json(value)))  # the model reads the recorded output
        check_size(output, what, "/output")
        return output

    return await world.run_sync(write) if is_longer(value, _AT_ONCE_MAX) else write()


async def invoke(world: World, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Call a function, plain or async, and return its result. A plain function runs in a thread."""
    if inspect.iscoroutinefunction(function):
        return await function(*args)
    result = await world.run_sync(function, *args)
    return await result if inspect.isawaitable(result) else result
