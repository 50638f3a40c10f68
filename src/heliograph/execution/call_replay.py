"""What comes of a call: its recorded result, or the turn is left until there is one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, NoReturn

from heliograph.codes import BUDGET_EXCEEDED, DELEGATION_TIMEOUT
from heliograph.errors import BudgetExceeded, DelegationFailed, StepInDoubt, ToolFailed, ToolTimedOut
from heliograph.execution.steps import Steps
from heliograph.records import Wait
from heliograph.turn.call_results import validated_result
from heliograph.turn.calls import CallRequest, CallResult, Journal, failed_first_error, result_of
from heliograph.turn.interruptions import Suspended
from heliograph.types import Json, JsonObject


class CallReplay:
    """The calls of one run of an agent. Each is found in the journal, or noted there, and the function is left."""

    def __init__(self, journal: Journal, steps: Steps):
        self._journal = journal
        self.steps = steps

    def find(self, request: CallRequest) -> Wait | None:
        """What is recorded of a call; None where it is new. Raises what the journal raises."""
        wait = self._journal.find(request)
        if wait is not None:
            self.steps.taint.resume(wait)
        return wait

    def _validated(self, request: CallRequest, wait: Wait) -> CallResult:
        self.steps.taint.read_result(wait)
        return validated_result(request, wait)

    async def value(self, request: CallRequest) -> Json:
        """The output of one call. Raises what `value_of` raises, Suspended."""
        [result] = await self.all([request])
        return value_of(request, result)

    async def all(self, requests: Sequence[CallRequest]) -> list[CallResult]:
        waits = [self.find(call) for call in requests]
        known = {
            call.call_id: self._validated(call, wait)
            for call, wait in zip(requests, waits, strict=True)
            if wait and _is_resolved(wait)
        }
        if (
            failed := _failed_fast(requests, waits)
        ) is not None:  # before these were made: else the kernel has canceled them
            for call, wait in zip(requests, waits, strict=True):
                if wait is None:
                    known[call.call_id] = await self.steps.refuse(call, failed_first_error(failed), "canceled")
        if unresolved := [call for call in requests if call.call_id not in known]:
            await self.suspend(unresolved)
        return [known[call.call_id] for call in requests]

    async def each(self, requests: Sequence[CallRequest]) -> AsyncIterator[CallResult]:
        waits = [self.find(call) for call in requests]
        resolved = [(call, wait) for call, wait in zip(requests, waits, strict=True) if wait and _is_resolved(wait)]
        for call, wait in sorted(resolved, key=lambda each: each[1].resolved_position or 0):
            yield self._validated(call, wait)
        if len(resolved) < len(requests):
            await self.suspend(
                [call for call, wait in zip(requests, waits, strict=True) if not _is_resolved(wait)], each=True
            )

    async def step(self, request: CallRequest, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        return value_of(request, await self.step_result(request, function, args))

    async def step_result(
        self, request: CallRequest, function: Callable[..., Any], args: tuple[Any, ...]
    ) -> CallResult:
        """The result of a step, recorded or made now."""
        return self.recorded_result(request) or await self.steps.run(request, function, args)

    def recorded_result(self, request: CallRequest) -> CallResult | None:
        """What is recorded of a step; None where it is to be done. Called once for each."""
        wait = self.find(request)
        return result_of(wait) if wait is not None and _is_resolved(wait) else None

    async def suspend(self, requests: Sequence[CallRequest], *, each: bool = False) -> NoReturn:
        self._journal.wait_for(requests, each=each)
        await self.steps.settled()  # steps beside this call are to be recorded before the turn is given back
        raise Suspended(requests[0].call_id)


def value_of(request: CallRequest, result: CallResult) -> Json:
    """The output of a call that went well. Raises what an agent is told of one that did not."""
    if result.is_good:
        return result.output
    error: JsonObject = result.error or {}
    message = str(error.get("message") or result.status)
    code = str(error["code"]) if error.get("code") else None
    if request.kind == "child":
        is_late = code == DELEGATION_TIMEOUT and error.get("child_turn_id") is None  # else it is the child's own
        raise DelegationFailed(
            f"agent {request.tool} (call {request.call_id}) did not succeed: {message}",
            code=code if is_late else None, agent=request.tool, call_id=request.call_id, outcome=result.status,
            error=error,
        )  # fmt: skip
    if result.status == "unknown":
        raise StepInDoubt(f"{request.tool} (call {request.call_id}) began and it is not known whether it happened: {message}",
                          step=request.tool, call_id=request.call_id)  # fmt: skip
    if code == BUDGET_EXCEEDED and "budget" in error:
        raise BudgetExceeded(f"{request.tool} (call {request.call_id}) was not called: {message}", tool=request.tool,
                             call_id=request.call_id, error=error)  # fmt: skip
    kind = ToolTimedOut if result.status == "timeout" else ToolFailed
    raise kind(f"{request.tool} (call {request.call_id}): {message}", code=code, tool=request.tool, call_id=request.call_id,
               error=error)  # fmt: skip


def _failed_fast(requests: Sequence[CallRequest], waits: Sequence[Wait | None]) -> CallRequest | None:
    """Of calls that are to fail fast the first that is recorded as not having succeeded."""
    failed = [
        (wait.resolved_position or 0, call) for call, wait in zip(requests, waits, strict=True)
        if call.fails_fast and wait and _is_resolved(wait) and wait.status != "success"
    ]  # fmt: skip
    return min(failed, key=lambda each: each[0])[1] if failed else None


def _is_resolved(wait: Wait | None) -> bool:
    return wait is not None and wait.state == "resolved"
