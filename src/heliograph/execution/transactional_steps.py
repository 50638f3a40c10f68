"""Steps with an effect in the runtime's own database: the effect and its record commit together or not at all."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, Literal

from msgspec.structs import replace

from heliograph.codes import TOOL_ERROR, TOOL_TIMEOUT
from heliograph.errors import AgentFailed, KernelRejected, SetupError, StoreUnavailable, TurnTimedOut
from heliograph.execution.step_outcome import error_of
from heliograph.execution.step_recorder import StepRecorder
from heliograph.records import WriteResult
from heliograph.turn.calls import CallRequest, CallResult
from heliograph.turn.interruptions import TurnAbandoned
from heliograph.world.seam import Transaction

_ATTEMPTS = 3
_COMMITTED = "it ended its transaction by itself, and its writes until then stay"
_LOST = "connection_lost"


async def in_transaction(
    steps: StepRecorder, request: CallRequest, function: Callable[..., Any], args: tuple[Any, ...]
) -> CallResult:
    """Commit the effect and its result together, or neither; the function's first argument is the connection.

    An exception of the function undoes the effect and is recorded alone. If the function committed by itself, its effect
    stays, and the error message mentions it. Raises TurnLost, AgentFailed.
    """
    why = ""
    for _ in range(_ATTEMPTS):
        try:
            result, write_result = await _attempt(steps, request, function, args)
        except StoreUnavailable as error:
            raise TurnAbandoned(f"abandoned, because the store is out of reach: {error.message}") from error
        if write_result is None:
            return await _recorded(steps, request, result)
        if write_result.outcome == "ok":
            return result
        why = write_result.message
        if (known := await steps.begin(request, steps.tool_reserve)) is not None:
            return known
    message = f"it was undone {_ATTEMPTS} times, since its transaction could not be committed: {why}"
    return await _recorded(steps, request, _failure(request, message))


async def _attempt(
    steps: StepRecorder, request: CallRequest, function: Callable[..., Any], args: tuple[Any, ...]
) -> tuple[CallResult, WriteResult | None]:
    """The result and the answer to its commit; None where the result is not recorded yet. Raises StoreUnavailable."""
    world, seconds = steps.world, request.timeout_seconds
    until = None if seconds is None else world.monotonic() + seconds
    async with AsyncExitStack() as stack:
        try:
            transaction = await world.within(seconds, stack.enter_async_context(world.transaction()))
        except TurnTimedOut:
            message = f"no connection to the database was free within {seconds:g} s; nothing was done"
            return CallResult(
                request.call_id, "timeout", None, error_of(TOOL_TIMEOUT, message, is_recoverable=True)
            ), None
        remaining = None if until is None else max(until - world.monotonic(), 0.001)
        result = await steps.inputs.step(
            world, replace(request, timeout_seconds=remaining), function, (transaction.connection, *args)
        )
        if result.status != "success":
            if result.error is not None and await transaction.was_committed():
                message = f"{result.error['message']}; {_COMMITTED}"
                result = replace(result, error={**result.error, "message": message})
            return result, None
        try:
            write_result = await _commit(steps, transaction, request, result)
        except (KernelRejected, SetupError) as error:  # SetupError: the function changed the connection's role
            undone = _COMMITTED if await transaction.was_committed() else "it was undone"
            return _failure(request, f"{undone}: {error.message}"), None
        if write_result.outcome == "rejected" and await transaction.was_committed():
            return _failure(request, f"{_COMMITTED}: {write_result.message}"), None
        return result, write_result


async def _recorded(steps: StepRecorder, request: CallRequest, result: CallResult) -> CallResult:
    await steps.record(request, result, [steps.resulted(request, result)])
    return result


def _failure(request: CallRequest, message: str) -> CallResult:
    return CallResult(request.call_id, "failed", None, error_of(TOOL_ERROR, message, is_recoverable=True))


async def _commit(
    steps: StepRecorder, transaction: Transaction, request: CallRequest, result: CallResult
) -> WriteResult:
    """Commit the effect with its record. The outcome is 'rejected' where the connection broke before the commit."""

    async def send(signals_emitted: int, drafts: list[dict[str, object]], _first: int) -> WriteResult:
        try:
            return await steps.ledger.record_call_in(transaction, steps.record_item(result, signals_emitted, drafts))
        except StoreUnavailable as error:
            # the kernel has either both or neither: beginning the step again returns a recorded result
            begun = await steps.ledger.begin_call(steps.intent_item(request, steps.tool_reserve))
            outcome: Literal["duplicate", "rejected"] = "duplicate" if begun.outcome == "done" else "rejected"
            return WriteResult(steps.turn_id, outcome, code=_LOST, message=error.message)

    await steps.world.failpoint("before_record")
    write_result = await steps.signals.commit(send, [steps.resulted(request, result)])
    if write_result.outcome == "rejected" and write_result.code != _LOST:
        raise AgentFailed(
            f"the result of step {request.tool} was rejected: {write_result.message}", code=write_result.code
        )
    return write_result
