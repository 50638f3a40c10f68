"""The calls of one run of an agent: recorded results are returned again, steps run now, and other calls suspend the turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from typing import Any, NoReturn

from msgspec.structs import replace

from heliograph.codes import BUDGET_EXCEEDED, CIRCUIT_OPEN, RATE_LIMITED
from heliograph.errors import (
    BudgetExceeded,
    CircuitOpen,
    DelegationFailed,
    HeliographError,
    RateLimited,
    StepInDoubt,
    ToolFailed,
    ToolTimedOut,
)
from heliograph.execution.call_routes import check_delegation
from heliograph.execution.owned_turn import OwnedTurn
from heliograph.execution.step_events import emit_step_event
from heliograph.execution.step_recorder import NextCall, StepRecorder
from heliograph.execution.transactional_steps import in_transaction
from heliograph.records import Wait
from heliograph.signals.model import Draft
from heliograph.turn.call_results import code_of_delegation, validated_result
from heliograph.turn.calls import CallRequest, CallResult, failed_first_error, result_of
from heliograph.turn.fallbacks import fallback_step, is_replaced
from heliograph.turn.interruptions import Suspended
from heliograph.turn.journal import Journal
from heliograph.turn.retries import delay_of, delays_of, final_result, next_attempt, pause_before
from heliograph.types import Json, JsonObject

Following = Callable[[CallRequest, CallResult], Sequence[NextCall]]


class CallReplay:
    """The journal, the replay and the steps of one run of an agent; the only object through which it makes calls.

    journal: numbers the calls and finds their records. steps: commits the intents and the results of steps.
    """

    def __init__(self, owned: OwnedTurn, journal: Journal):
        self.journal = journal
        self._owned = owned
        self._claimed = owned.claimed
        self._world = owned.world
        self._workflow = owned.workflow
        self._state_events = owned.state_events
        self._trace = owned.trace
        self._in_flight: set[asyncio.Future[None]] = set()
        self._running: list[str] = []  # the tools that have started and have no result yet, in the order of their start
        owned.inputs.acting(journal)

    @cached_property
    def steps(self) -> StepRecorder:
        return StepRecorder(self._owned)

    # ── Calls that suspend the turn ──

    def find(self, request: CallRequest) -> Wait | None:
        """The record of a call; None for a new call. Raises the exceptions of `Journal.find`."""
        self.steps.inputs.requested(request)
        wait = self.journal.find(request)
        if wait is not None:
            self.steps.taint.resume(wait)
        return wait

    def _validated(self, request: CallRequest, wait: Wait) -> CallResult:
        self.steps.taint.read_result(wait)
        return validated_result(request, wait)

    async def value(self, request: CallRequest) -> Json:
        """The output of one call. Raises Suspended, and the exceptions of `value_of`."""
        [result] = await self.all([request])
        return value_of(request, result)

    async def all(self, requests: Sequence[CallRequest], limit: int | None = None) -> list[CallResult]:
        """The results of all calls, of their last attempts. limit: the most that are open at once. Raises Suspended until each has one."""
        requests, waits, known, rescued = await self._known(requests)
        if (failed := _failed_fast(requests, waits, rescued)) is not None:  # the kernel cancels only recorded calls
            error = failed_first_error(failed)
            for call, wait in zip(requests, waits, strict=True):
                if wait is None and call.step_id == failed.step_id:  # with a limit, there may be many
                    known[call.call_id] = (await self.steps.reject(call, error, "canceled") if limit is None else
                                           CallResult(call.call_id, "canceled", None, error))  # fmt: skip
        if unresolved := [
            (call, wait) for call, wait in zip(requests, waits, strict=True) if call.call_id not in known
        ]:
            await self._suspend_within(unresolved, limit)
        return [known[call.call_id] for call in requests]

    async def until_failure(self, requests: Sequence[CallRequest], limit: int | None) -> list[CallResult | None]:
        """The results of all calls; after a failure no call begins, and those that did not begin have None. Raises Suspended."""
        newest, waits, known, _ = await self._known(requests)
        unresolved = [(call, wait) for call, wait in zip(newest, waits, strict=True) if call.call_id not in known]
        if not all(result.is_good for result in known.values()):
            unresolved = [(call, wait) for call, wait in unresolved if wait is not None and wait.kind != "timer"]
        if unresolved:
            await self._suspend_within(unresolved, limit)
        return [known.get(call.call_id) for call in newest]

    async def _known(
        self, requests: Sequence[CallRequest]
    ) -> tuple[list[CallRequest], list[Wait | None], dict[str, CallResult], set[str]]:
        """The newest attempt of each call with its record, the final results by call, and the calls whose fallbacks succeeded."""
        requests, waits = self._newest(requests)
        known = {
            call.call_id: final_result(call, self._validated(call, wait))
            for call, wait in zip(requests, waits, strict=True)
            if wait and _is_resolved(wait)
        }
        replaced = [call for call in requests if call.call_id in known and is_replaced(call, known[call.call_id])]
        for call in replaced:
            known[call.call_id] = await self.fall_back(call, known[call.call_id])
        return requests, waits, known, {call.call_id for call in replaced if known[call.call_id].is_good}

    async def _suspend_within(
        self, unresolved: Sequence[tuple[CallRequest, Wait | None]], limit: int | None
    ) -> NoReturn:
        """Wait for these calls. Under a limit, wait for those that are open, begin the next ones, and run again with each result."""
        opened = [call for call, wait in unresolved if wait is not None]
        new = [call for call, wait in unresolved if wait is None]
        if limit is None or len(unresolved) <= limit:
            await self.suspend([call for call, _ in unresolved])
        await self.suspend([*opened, *new[: max(limit - len(opened), 0)]], each=True)

    async def each(self, requests: Sequence[CallRequest]) -> AsyncIterator[tuple[int, CallResult]]:
        """The results in the order in which they arrived, each with the index of its call. Raises Suspended after the last known result."""
        requests, waits = self._newest(requests)
        resolved = [
            (n, call, wait)
            for n, (call, wait) in enumerate(zip(requests, waits, strict=True))
            if wait and _is_resolved(wait)
        ]
        for n, call, wait in sorted(resolved, key=lambda each: each[2].resolved_position or 0):
            result = final_result(call, self._validated(call, wait))
            yield n, await self.fall_back(call, result) if is_replaced(call, result) else result
        if len(resolved) < len(requests):
            await self.suspend(
                [call for call, wait in zip(requests, waits, strict=True) if not _is_resolved(wait)], each=True
            )

    def _newest(self, requests: Sequence[CallRequest]) -> tuple[list[CallRequest], list[Wait | None]]:
        """The newest attempt of each call, or the pause before the next one, and their records."""
        newest = list(requests)
        waits = [self.find(call) for call in newest]
        if all(call.retry is None for call in newest):
            return newest, waits
        while delays := delays_of(self._results(newest, waits), self._claimed.turn_id):
            for n, seconds in delays.items():
                newest[n], waits[n] = self._again(newest[n], seconds)
        return newest, waits

    def _results(
        self, calls: Sequence[CallRequest], waits: Sequence[Wait | None]
    ) -> list[tuple[CallRequest, CallResult | None]]:
        return [
            (call, self._validated(call, wait) if call.retry is not None and wait and _is_resolved(wait) else None)
            for call, wait in zip(calls, waits, strict=True)
        ]

    def _again(self, request: CallRequest, seconds: float) -> tuple[CallRequest, Wait | None]:
        """The next attempt of a call and its record; or the pause before it, while that lasts."""
        again = self.next_attempt(request)
        pause = self.pause_before(again, seconds)
        return (again, self.find(again)) if pause is None else pause

    def next_attempt(self, request: CallRequest) -> CallRequest:
        """The request of the next attempt. It takes a place in the order of calls, like each call with a chosen id.

        Raises InvalidInput for a new attempt that the present routes and agents do not allow.
        """
        again = next_attempt(request, self._claimed.turn_id)
        self.journal.new_call(again.call_id)
        return again if self.journal.has_call(again.call_id) else check_delegation(self._workflow, again)

    def pause_before(self, again: CallRequest, seconds: float) -> tuple[CallRequest, Wait | None] | None:
        """The timer before a repeated attempt, with its record, while it lasts; None once the attempt may begin."""
        pause = pause_before(again, seconds)
        if self.journal.has_call(again.call_id) and not self.journal.has_call(pause.call_id):
            return None  # an earlier policy had no pause
        wait = self.find(pause)
        return None if _is_resolved(wait) else (pause, wait)

    async def suspend(self, requests: Sequence[CallRequest], *, each: bool = False) -> NoReturn:
        """Wait for these calls: record the running steps, then raise Suspended."""
        self.journal.wait_for(requests, each=each)
        await self.steps.inputs.suspending()
        await self.settled()
        raise Suspended(requests[0].call_id)

    # ── Steps ──

    async def step(self, request: CallRequest, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """The output of a step, recorded or run now. Raises the exceptions of `value_of`, TurnLost, AgentFailed, Suspended."""
        result = self.recorded_result(request) or await self.run_step(request, function, args)
        while (seconds := delay_of(request, result, self._claimed.turn_id)) is not None:
            request = self.next_attempt(request)
            if (pause := self.pause_before(request, seconds)) is not None:
                await self.suspend([pause[0]])
            result = self.recorded_result(request) or await self.run_step(request, function, args)
        result = final_result(request, result)
        if is_replaced(request, result):
            result = await self.fall_back(request, result)
        return value_of(request, result)

    async def fall_back(self, request: CallRequest, rejection: CallResult) -> CallResult:
        """The result of the fallback of a rejected call, recorded or run now. Raises TurnLost, AgentFailed."""
        assert request.fallback is not None
        step = fallback_step(request)
        self.journal.new_call(step.call_id)  # it takes a place in the order of calls, like each call with a chosen id
        error = error_of_call(request, rejection)
        result = self.recorded_result(step) or await self.run_step(step, request.fallback, (error,))
        return replace(result, call_id=request.call_id)

    def recorded_result(self, request: CallRequest) -> CallResult | None:
        """The recorded result of a step; None for a step that has to run. Called once for each step."""
        wait = self.find(request)
        return result_of(wait) if wait is not None and _is_resolved(wait) else None

    async def run_step(
        self,
        request: CallRequest,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        following: Following | None = None,
    ) -> CallResult:
        """Begin, run and record one step; or return its result where the kernel has one. Raises TurnLost, AgentFailed.

        following: returns the calls that are known to follow this result; their intents commit with it.
        """
        async with self._unsettled():
            try:
                known = await self.steps.begin(request, self.steps.tool_reserve)
            except (BudgetExceeded, CircuitOpen, RateLimited) as error:
                return await self.steps.reject(request, error.error)
            if known is not None:
                if known.status == "unknown":  # its first owner may have recorded spans below it
                    with self._trace.tool_call(request.call_id, request.tool, request.input) as call:
                        call.returned(known.status, known.output, known.error)
                return known
            self.steps.announce(request)
            emit_step_event(self._world, self._claimed, request.step_id, self.steps.signals.phase)
            return await self._observed(request, function, args, following)

    async def log(self, request: CallRequest, draft: Draft) -> None:
        """Log a signal now, once in this turn: a later run finds the record of it. Raises TurnLost, AgentFailed."""
        if self.recorded_result(request) is None:
            async with self._unsettled():
                await self.steps.log(request, draft)

    @asynccontextmanager
    async def _unsettled(self) -> AsyncIterator[None]:
        """A part of the run that a suspension waits for."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._in_flight.add(done)
        try:
            yield
        finally:
            self._in_flight.discard(done)
            done.cancel()

    async def settled(self) -> None:
        """Return once no step is between its intent and its result."""
        while self._in_flight:
            await asyncio.wait(self._in_flight)

    async def _observed(
        self, request: CallRequest, function: Callable[..., Any], args: tuple[Any, ...], following: Following | None
    ) -> CallResult:
        """Run and record a step that has begun. State events name the running tool, and afterwards the next activity."""
        self._running.append(request.tool)
        self._emit_activity()
        try:
            with self._trace.tool_call(request.call_id, request.tool, request.input) as call:
                if request.effect == "transactional":
                    result = await in_transaction(self.steps, request, function, args)
                else:
                    result = await self.steps.inputs.step(self._world, request, function, args)
                    calls = () if following is None else following(request, result)
                    await self.steps.record(request, result, [self.steps.resulted(request, result)], following=calls)
                call.returned(result.status, result.output, result.error)
                return result
        finally:
            self._running.remove(request.tool)
            self._emit_activity()

    def _emit_activity(self) -> None:
        tool = self._running[-1] if self._running else None
        self._state_events.emit(self._world, self._claimed, "executing_tool" if tool else "thinking", tool)


def value_of(request: CallRequest, result: CallResult) -> Json:
    """The output of a successful call. Raises the agent's exception for any other result."""
    if result.is_good:
        return result.output
    raise error_of_call(request, result)


def error_of_call(request: CallRequest, result: CallResult) -> HeliographError:
    """The exception that an agent receives for a call that did not succeed."""
    error: JsonObject = result.error or {}
    message = str(error.get("message") or result.status)
    code = str(error["code"]) if error.get("code") else None
    if request.kind == "child":
        return DelegationFailed(
            f"agent {request.tool} (call {request.call_id}) did not succeed: {message}", code=code_of_delegation(error),
            agent=request.tool, call_id=request.call_id, outcome=result.status, error=error,
        )  # fmt: skip
    if result.status == "unknown":
        return StepInDoubt(f"{request.tool} (call {request.call_id}) started, and its outcome is unknown: {message}",
                          step=request.tool, call_id=request.call_id)  # fmt: skip
    if code == BUDGET_EXCEEDED and "budget" in error:
        return BudgetExceeded(f"{request.tool} (call {request.call_id}) was not called: {message}", tool=request.tool,
                             call_id=request.call_id, error=error)  # fmt: skip
    if code == CIRCUIT_OPEN and "circuit" in error:
        return CircuitOpen(f"{request.tool} (call {request.call_id}) was not called: {message}", tool=request.tool,
                          call_id=request.call_id, error=error)  # fmt: skip
    if code == RATE_LIMITED and "rate" in error:
        return RateLimited(f"{request.tool} (call {request.call_id}) was not called: {message}", tool=request.tool,
                           call_id=request.call_id, error=error)  # fmt: skip
    kind = ToolTimedOut if result.status == "timeout" else ToolFailed
    return kind(f"{request.tool} (call {request.call_id}): {message}", code=code, tool=request.tool, call_id=request.call_id,
               error=error)  # fmt: skip


def _failed_fast(
    requests: Sequence[CallRequest], waits: Sequence[Wait | None], rescued: Collection[str]
) -> CallRequest | None:
    """The first call that did not succeed, among those that fail fast. rescued: the calls whose fallbacks succeeded."""
    failed = [
        (wait.resolved_position or 0, call) for call, wait in zip(requests, waits, strict=True)
        if call.fails_fast and wait and _is_resolved(wait) and wait.status != "success"
        and call.call_id not in rescued
    ]  # fmt: skip
    return min(failed, key=lambda each: each[0])[1] if failed else None


def _is_resolved(wait: Wait | None) -> bool:
    return wait is not None and wait.state == "resolved"
