"""Steps whose effect is in our own database: it is committed together with the record of it, or not at all (K13)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, Protocol

from heliograph.codes import TOOL_ERROR, TOOL_TIMEOUT
from heliograph.errors import AgentFailed, KernelRefused, SetupError, StoreUnavailable, TurnTimedOut
from heliograph.execution.ownership import GivenUp
from heliograph.execution.project_services import Kit
from heliograph.execution.signal_buffer import Voice
from heliograph.execution.step_outcome import error_of, outcome_of
from heliograph.records import Written
from heliograph.signals.model import Draft
from heliograph.turn.calls import Asked, CallResult
from heliograph.world.seam import Transaction

_TRIES = 3
_COMMITTED = "it has ended its transaction by itself, and what it had committed stays"
_LOST = "connection_lost"


class StepRecorder(Protocol):
    """Begins steps and records their results, as `heliograph.execution.steps.Steps` does."""

    kit: Kit
    voice: Voice
    turn_id: str
    tool_reserve: dict[str, int] | None

    async def begin(self, asked: Asked, reserve: Mapping[str, int] | None = None) -> CallResult | None: ...

    async def record(self, asked: Asked, result: CallResult, drafts: list[Draft]) -> None: ...

    def intent(self, asked: Asked, reserve: Mapping[str, int] | None) -> dict[str, Any]: ...

    def item(self, result: CallResult, said: int, drafts: list[dict[str, object]]) -> dict[str, Any]: ...

    def resulted(self, asked: Asked, result: CallResult) -> Draft: ...


async def in_transaction(
    steps: StepRecorder, asked: Asked, function: Callable[..., Any], args: tuple[Any, ...]
) -> CallResult:
    """Commit the effect and its result together, or neither; the function's first argument is the connection.

    Whatever it raises undoes the effect, and is recorded by itself; what the function has committed on its own stays, and is
    told. Raises TurnLost, AgentFailed.
    """
    why = ""
    for _ in range(_TRIES):
        try:
            result, written = await _tried(steps, asked, function, args)
        except StoreUnavailable as error:
            raise GivenUp(f"given up, the store cannot be asked: {error.message}") from error
        if written is None:
            return await _recorded(steps, asked, result)
        if written.outcome == "ok":
            return result
        why = written.message
        if (known := await steps.begin(asked, steps.tool_reserve)) is not None:
            return known
    message = f"it was undone {_TRIES} times, since its transaction could not be committed: {why}"
    return await _recorded(steps, asked, _failure(asked, message))


async def _tried(
    steps: StepRecorder, asked: Asked, function: Callable[..., Any], args: tuple[Any, ...]
) -> tuple[CallResult, Written | None]:
    """The result, and what the store says of it; None where it is still to be recorded. Raises StoreUnavailable."""
    world, seconds = steps.kit.world, asked.timeout_seconds
    until = None if seconds is None else world.monotonic() + seconds
    async with AsyncExitStack() as stack:
        try:
            transaction = await world.within(seconds, stack.enter_async_context(world.transaction()))
        except TurnTimedOut:
            message = f"no connection to the database was free within {seconds:g} s; nothing was done"
            return CallResult(
                asked.call_id, "timeout", None, error_of(TOOL_TIMEOUT, message, is_recoverable=True)
            ), None
        left = None if until is None else max(until - world.monotonic(), 0.001)
        given = (transaction.connection, *args)
        result = await outcome_of(world, replace(asked, timeout_seconds=left), function, given)
        if result.status != "success":
            if result.error is not None and await transaction.was_committed():
                said = f"{result.error['message']}; {_COMMITTED}"
                result = replace(result, error={**result.error, "message": said})
            return result, None
        try:
            written = await _commit(steps, transaction, asked, result)
        except (KernelRefused, SetupError) as error:  # the latter of a function that has become somebody else
            undone = _COMMITTED if await transaction.was_committed() else "it was undone"
            return _failure(asked, f"{undone}: {error.message}"), None
        if written.outcome == "refused" and await transaction.was_committed():
            return _failure(asked, f"{_COMMITTED}: {written.message}"), None
        return result, written


async def _recorded(steps: StepRecorder, asked: Asked, result: CallResult) -> CallResult:
    await steps.record(asked, result, [steps.resulted(asked, result)])
    return result


def _failure(asked: Asked, message: str) -> CallResult:
    return CallResult(asked.call_id, "failed", None, error_of(TOOL_ERROR, message, is_recoverable=True))


async def _commit(steps: StepRecorder, transaction: Transaction, asked: Asked, result: CallResult) -> Written:
    """'ok', 'duplicate', or 'refused': the connection broke, and nothing of it is there. Raises also what the store says."""
    ledger = steps.kit.ledger

    async def send(said: int, drafts: list[dict[str, object]], _first: int) -> Written:
        try:
            return await ledger.record_call_in(transaction, steps.item(result, said, drafts))
        except StoreUnavailable as error:
            # either both are there or neither, and only the kernel knows
            begun = await ledger.begin_call(steps.intent(asked, steps.tool_reserve))
            outcome = {"done": "duplicate", "stale": "stale"}.get(begun.outcome, "refused")
            return Written(steps.turn_id, outcome, code=_LOST, message=error.message)  # type: ignore[arg-type]

    await steps.kit.world.point("before_record")
    written = await steps.voice.commit(send, [steps.resulted(asked, result)])
    if written.outcome == "refused" and written.code != _LOST:
        raise AgentFailed(f"the result of step {asked.tool} was not taken: {written.message}", code=written.code)
    return written
