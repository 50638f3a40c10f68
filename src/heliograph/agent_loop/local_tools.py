"""Tool calls that run in this process: in parallel, each attempt recorded when it is done.

A short pause before a retry is spent in this worker. For a longer one the turn is suspended, once all other calls are done.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import msgspec

from heliograph.agent_loop.concurrency import Slot, slot_of
from heliograph.agent_loop.in_doubt import check_doubt, question_of_doubt, resolve_doubt
from heliograph.agent_loop.tool_guards import guarded
from heliograph.codes import RESULT_TOO_LARGE
from heliograph.errors import AgentFailed
from heliograph.execution.call_replay import CallReplay
from heliograph.execution.owned_turn import OwnedTurn
from heliograph.execution.step_recorder import NextCall, StepNotStarted
from heliograph.ids import idempotency_key
from heliograph.signals.values import to_json
from heliograph.tools.bound_tool import BoundTool
from heliograph.tools.context import ToolContext
from heliograph.tools.secrets import resolved
from heliograph.turn.call_results import check_result
from heliograph.turn.calls import CallRequest, CallResult
from heliograph.turn.fallbacks import fallback_step, is_replaced
from heliograph.turn.retries import delay_of, final_result

SHORT_PAUSE_SECONDS = 1.0
_TOO_LARGE = "payload_too_large"

T = TypeVar("T")
LocalCall = tuple[BoundTool, dict[str, Any]]  # a tool and the arguments of its call


class _Batch:
    """The calls of one reply without a result. following: the model call after all of them, if it is known to follow."""

    def __init__(self, calls: int, following: NextCall | None, turn_id: str):
        self._remaining = calls
        self._following = following
        self._turn_id = turn_id

    def resulted(self, request: CallRequest, result: CallResult) -> Sequence[NextCall]:
        """The model call, if this is the last result for which it waits: none that is tried again, replaced or in doubt."""
        is_final = result.status != "unknown" and delay_of(request, result, self._turn_id) is None
        self._remaining -= is_final and not is_replaced(request, final_result(request, result))
        return [self._following] if self._following is not None and self._remaining == 0 else ()


class LocalToolExecutor:
    """Runs the tool calls of one turn whose tools are functions."""

    def __init__(self, owned: OwnedTurn, replay: CallReplay):
        self._owned = owned
        self._journal = replay.journal
        self._replay = replay

    async def run_all(
        self, step: int, calls: Mapping[int, LocalCall], following: Callable[[], NextCall] | None = None
    ) -> dict[int, CallResult]:
        """The results of the calls, by their positions. Raises Suspended, TurnLost, AgentFailed.

        following: returns the model call that follows, once the steps of the calls have their ids.
        """
        results = await self._run_batch(step, calls, following=following)
        for n, result in results.items():
            check_doubt(calls[n][0].tool, result)
        decided: set[int] = set()
        for round_number in itertools.count(1):  # a repeated call may be in doubt again
            doubts = {
                n: calls[n] for n, result in results.items()
                if result.status == "unknown" and calls[n][0].tool.in_doubt == "ask" and n not in decided
            }  # fmt: skip
            if not doubts:
                break
            known = await self._decisions(step, doubts, results, round_number)
            decided |= known.keys()
            again = {n: each for n, each in doubts.items() if n not in known}
            results |= known | await self._run_batch(step, again, round_number)
        return results

    def requests(self, step: int, calls: Mapping[int, LocalCall]) -> list[CallRequest]:
        """The requests that `run_all` makes for these calls, if no other step comes before them."""
        steps = self._journal.coming_steps(len(calls))
        return [
            self._call_request(str(self._journal.call_id(step, n + 1)), step_id, *call)
            for step_id, (n, call) in zip(steps, calls.items(), strict=True)
        ]

    async def _run_batch(
        self, step: int, calls: Mapping[int, LocalCall], again: int = 0,
        following: Callable[[], NextCall] | None = None,
    ) -> dict[int, CallResult]:  # fmt: skip
        """The results of the calls. A repeated call reuses its idempotency key, so the receiver can deduplicate it."""
        ids = {n: self._journal.call_id(step, n + 1) for n in calls}
        requests = {
            n: self._call_request(call_id.again(again) if again else str(call_id), self._journal.new_step(), *calls[n])
            for n, call_id in ids.items()
        }
        batch = _Batch(len(calls), None if following is None else following(), self._owned.claimed.turn_id)
        done = await _run_concurrently(self._run_attempts(requests[n], *calls[n], str(ids[n]), batch) for n in calls)
        if pauses := [each for each in done if isinstance(each, CallRequest)]:
            await self._replay.suspend(pauses, each=True)
        return {n: each for n, each in zip(calls, done, strict=True) if isinstance(each, CallResult)}

    async def _run_attempts(
        self, request: CallRequest, tool: BoundTool, arguments: dict[str, Any], key: str, batch: _Batch
    ) -> CallResult | CallRequest:
        """The result of the last attempt, or the pause for which the turn is suspended."""
        result = await self._run_step(request, tool, arguments, key, batch)
        while (seconds := delay_of(request, result, self._owned.claimed.turn_id)) is not None:
            request = self._replay.next_attempt(request)
            if seconds >= SHORT_PAUSE_SECONDS:
                if (pause := self._replay.pause_before(request, seconds)) is not None:
                    return pause[0]
            elif not self._journal.has_call(request.call_id):
                await self._owned.world.sleep(seconds)
            result = await self._run_step(request, tool, arguments, key, batch)
        result = final_result(request, result)
        return await self._fall_back(request, result) if is_replaced(request, result) else result

    async def _fall_back(self, request: CallRequest, rejection: CallResult) -> CallResult:
        try:
            return await self._replay.fall_back(request, rejection)
        except AgentFailed as error:
            if error.code != _TOO_LARGE:
                raise
            failed = await self._replay.steps.fail(fallback_step(request), RESULT_TOO_LARGE, error.message)
            return msgspec.structs.replace(failed, call_id=request.call_id)

    async def _decisions(
        self,
        step: int,
        doubts: Mapping[int, LocalCall],
        results: Mapping[int, CallResult],
        round_number: int,
    ) -> dict[int, CallResult]:
        """The results that people decided on; calls to repeat are left out. Raises Suspended."""
        requests = {
            n: question_of_doubt(
                tool.tool, self._journal.call_id(step, n + 1).doubt(round_number), self._journal.new_step(), arguments
            )
            for n, (tool, arguments) in doubts.items()
        }
        decisions = dict(zip(requests, await self._replay.all(list(requests.values())), strict=True))
        known = {n: resolve_doubt(doubts[n][0], requests[n], results[n], decisions[n]) for n in doubts}
        return {n: result for n, result in known.items() if result is not None}

    def _call_request(self, call_id: str, step_id: str, bound: BoundTool, arguments: dict[str, Any]) -> CallRequest:
        tool = bound.tool
        return guarded(self._owned, bound, CallRequest(
            call_id, step_id, tool.name, "inline", arguments, effect=tool.effect,
            is_trusted=tool.trusted,
        ))  # fmt: skip

    async def _run_step(
        self, request: CallRequest, tool: BoundTool, arguments: dict[str, Any], key: str, batch: _Batch
    ) -> CallResult:
        claimed = self._owned.claimed
        outside = idempotency_key(self._owned.project, claimed.target, claimed.turn_id, key)
        context = ToolContext(claimed.run_id, claimed.turn_id, claimed.agent, request.call_id, outside,
                              self._owned.workflow.deps, resolver=self._owned.workflow.secrets)  # fmt: skip

        if (known := self._replay.recorded_result(request)) is not None:
            batch.resulted(request, known)
            return known
        # wait for a slot before the step starts: a waiting call has no effect yet, and its time-out has not started
        async with slot_of(tool.slots, self._owned.world) as slot:

            async def invoke(connection: Any = None) -> Any:
                return await self._invoke(tool, replace(context, connection=connection), arguments, slot)

            try:
                return await self._replay.run_step(request, invoke, (), batch.resulted)
            except AgentFailed as error:
                if error.code != _TOO_LARGE:
                    raise
                did = "was undone" if request.effect == "transactional" else "was done"
                return await self._replay.steps.fail(request, RESULT_TOO_LARGE, f"it {did}; {error.message}")

    async def _invoke(self, tool: BoundTool, context: ToolContext, arguments: dict[str, Any], slot: Slot) -> Any:
        given = resolved(arguments, tool.tool.secrets, self._owned.workflow.secrets)
        result = await tool.call(context, given, slot.run_sync)
        return (
            result
            if tool.output_problems is None
            else check_result(tool.tool.name, tool.output_problems, to_json(result))
        )


async def _run_concurrently(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The results of parallel calls. If a call raises, or this is cancelled, the others are cancelled, and are in doubt.

    If a call could not start, the others run to their end first.
    """
    tasks = [asyncio.ensure_future(call) for call in calls]
    together = asyncio.gather(*tasks)  # it also retrieves the exceptions of the others
    together.add_done_callback(_retrieve_exception)
    try:
        if tasks:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            if any(not task.cancelled() and isinstance(task.exception(), StepNotStarted) for task in done):
                await asyncio.wait(tasks)
        return await together
    finally:
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def _retrieve_exception(future: asyncio.Future[Any]) -> None:
    """Mark the exception as retrieved, so that asyncio logs none after the caller was cancelled, even twice."""
    if not future.cancelled():
        future.exception()
