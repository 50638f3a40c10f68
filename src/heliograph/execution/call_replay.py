"""What comes of a call: its recorded result, or the turn is left until there is one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, NoReturn

from heliograph.codes import BUDGET_EXCEEDED, DELEGATION_TIMEOUT
from heliograph.errors import BudgetExceeded, DelegationFailed, StepInDoubt, ToolFailed, ToolTimedOut
from heliograph.execution.steps import Steps
from heliograph.records import Wait
from heliograph.turn.call_results import heard
from heliograph.turn.calls import Asked, CallResult, Journal, failed_first, result_of
from heliograph.turn.interruptions import Suspended
from heliograph.types import Json, JsonObject


class Asking:
    """The calls of one run of an agent. Each is found in the journal, or noted there, and the function is left."""

    def __init__(self, journal: Journal, steps: Steps):
        self._journal = journal
        self.steps = steps

    def find(self, asked: Asked) -> Wait | None:
        """What is recorded of a call; None where it is new. Raises what the journal raises."""
        wait = self._journal.find(asked)
        if wait is not None:
            self.steps.taint.resume(wait)
        return wait

    def _heard(self, asked: Asked, wait: Wait) -> CallResult:
        self.steps.taint.read_result(wait)
        return heard(asked, wait)

    async def value(self, asked: Asked) -> Json:
        """The output of one call. Raises what `value_of` raises, Suspended."""
        [result] = await self.all([asked])
        return value_of(asked, result)

    async def all(self, asked: Sequence[Asked]) -> list[CallResult]:
        waits = [self.find(call) for call in asked]
        known = {
            call.call_id: self._heard(call, wait)
            for call, wait in zip(asked, waits, strict=True)
            if wait and _is_resolved(wait)
        }
        if (
            failed := _failed_fast(asked, waits)
        ) is not None:  # before these were made: else the kernel has canceled them
            for call, wait in zip(asked, waits, strict=True):
                if wait is None:
                    known[call.call_id] = await self.steps.refuse(call, failed_first(failed), "canceled")
        if unresolved := [call for call in asked if call.call_id not in known]:
            await self.suspend(unresolved)
        return [known[call.call_id] for call in asked]

    async def each(self, asked: Sequence[Asked]) -> AsyncIterator[CallResult]:
        waits = [self.find(call) for call in asked]
        resolved = [(call, wait) for call, wait in zip(asked, waits, strict=True) if wait and _is_resolved(wait)]
        for call, wait in sorted(resolved, key=lambda each: each[1].resolved_position or 0):
            yield self._heard(call, wait)
        if len(resolved) < len(asked):
            await self.suspend(
                [call for call, wait in zip(asked, waits, strict=True) if not _is_resolved(wait)], each=True
            )

    async def step(self, asked: Asked, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        return value_of(asked, await self.done(asked, function, args))

    async def done(self, asked: Asked, function: Callable[..., Any], args: tuple[Any, ...]) -> CallResult:
        """The result of a step, recorded or made now."""
        return self.recorded(asked) or await self.steps.run(asked, function, args)

    def recorded(self, asked: Asked) -> CallResult | None:
        """What is recorded of a step; None where it is to be done. Called once for each."""
        wait = self.find(asked)
        return result_of(wait) if wait is not None and _is_resolved(wait) else None

    async def suspend(self, asked: Sequence[Asked], *, each: bool = False) -> NoReturn:
        self._journal.want(asked, each=each)
        await self.steps.settled()  # steps beside this call are to be recorded before the turn is given back
        raise Suspended(asked[0].call_id)


def value_of(asked: Asked, result: CallResult) -> Json:
    """The output of a call that went well. Raises what an agent is told of one that did not."""
    if result.is_good:
        return result.output
    error: JsonObject = result.error or {}
    message = str(error.get("message") or result.status)
    code = str(error["code"]) if error.get("code") else None
    if asked.kind == "child":
        is_late = code == DELEGATION_TIMEOUT and error.get("child_turn_id") is None  # else it is the child's own
        raise DelegationFailed(
            f"agent {asked.tool} (call {asked.call_id}) did not succeed: {message}",
            code=code if is_late else None, agent=asked.tool, call_id=asked.call_id, outcome=result.status,
            error=error,
        )  # fmt: skip
    if result.status == "unknown":
        raise StepInDoubt(f"{asked.tool} (call {asked.call_id}) began and it is not known whether it happened: {message}",
                          step=asked.tool, call_id=asked.call_id)  # fmt: skip
    if code == BUDGET_EXCEEDED and "budget" in error:
        raise BudgetExceeded(f"{asked.tool} (call {asked.call_id}) was not called: {message}", tool=asked.tool,
                             call_id=asked.call_id, error=error)  # fmt: skip
    kind = ToolTimedOut if result.status == "timeout" else ToolFailed
    raise kind(f"{asked.tool} (call {asked.call_id}): {message}", code=code, tool=asked.tool, call_id=asked.call_id,
               error=error)  # fmt: skip


def _failed_fast(asked: Sequence[Asked], waits: Sequence[Wait | None]) -> Asked | None:
    """Of calls that are to fail fast the first that is recorded as not having succeeded."""
    failed = [
        (wait.resolved_position or 0, call) for call, wait in zip(asked, waits, strict=True)
        if call.fails_fast and wait and _is_resolved(wait) and wait.status != "success"
    ]  # fmt: skip
    return min(failed, key=lambda each: each[0])[1] if failed else None


def _is_resolved(wait: Wait | None) -> bool:
    return wait is not None and wait.state == "resolved"
