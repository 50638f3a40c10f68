"""Steps: effects that an agent's function has here and now, once (K13, K14).

The intent is committed before the effect and the result after it. A worker that dies in between leaves an intent
without a result: the next owner is told `again` where the effect may be repeated, and `in_doubt` where it may not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Literal, TypeVar

import msgspec

from heliograph.codes import BUDGET_EXCEEDED, RESOURCE_EXHAUSTED
from heliograph.errors import AgentFailed, BudgetExceeded, KernelRejected, StoreUnavailable
from heliograph.execution.owned_turn import OwnedTurn
from heliograph.execution.ownership import TurnAbandoned, owner_fields, turn_lost
from heliograph.execution.step_events import emit_step_event
from heliograph.execution.step_outcome import error_of, outcome_of
from heliograph.execution.transactional_steps import in_transaction
from heliograph.records import BeginResult, Wait, WriteResult
from heliograph.signals.model import Draft
from heliograph.signals.payload import truncated
from heliograph.turn.calls import CallRequest, CallResult, result_of
from heliograph.types import JsonObject

_TOOL_CALLS = "tool_calls"

T = TypeVar("T")


class StepNotStarted(AgentFailed):
    """The turn may have no more calls: nothing of this one has happened."""


class Steps:
    """The steps of one owned turn."""

    def __init__(self, owned: OwnedTurn):
        self._claimed = owned.claimed
        self.turn_id = owned.claimed.turn_id
        self.signals = owned.signals
        self.services = owned.services
        self._cancel_flag = owned.cancel_flag
        self.taint = owned.taint
        self._not_made = owned.not_made
        self._sources_before: dict[str, int] = {}  # how many sources the turn had read when it began a call, by call id
        self._in_flight: set[asyncio.Future[None]] = set()
        self._running: list[str] = []  # the tools that have started and have no result yet, in the order of their start
        self.tool_reserve = {_TOOL_CALLS: 1} if _TOOL_CALLS in (owned.claimed.budget or {}) else None

    async def settled(self) -> None:
        """Return when no step is between its intent and its result."""
        while self._in_flight:
            await asyncio.wait(self._in_flight)

    async def run(self, request: CallRequest, function: Callable[..., Any], args: tuple[Any, ...]) -> CallResult:
        """Begin, do and record one step; or what is known of it, where it began before. Raises TurnLost, AgentFailed."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._in_flight.add(done)
        try:
            try:
                known = await self.begin(request, self.tool_reserve)
            except BudgetExceeded as error:
                return await self.refuse(request, error.error)
            if known is not None:
                return known
            self.signals.add_urgent(self._called(request))
            emit_step_event(self.services.world, self._claimed, request.step_id, self.signals.phase)
            return await self._observed(request, function, args)
        finally:
            self._in_flight.discard(done)
            done.cancel()

    async def _observed(self, request: CallRequest, function: Callable[..., Any], args: tuple[Any, ...]) -> CallResult:
        """Run and record a step that has begun; state events name the tool that runs meanwhile, and then the next activity."""
        self._running.append(request.tool)
        self._emit_activity()
        try:
            if request.effect == "transactional":
                return await in_transaction(self, request, function, args)
            result = await outcome_of(self.services.world, request, function, args)
            await self.record(request, result, [self.resulted(request, result)])
            return result
        finally:
            self._running.remove(request.tool)
            self._emit_activity()

    def _emit_activity(self) -> None:
        tool = self._running[-1] if self._running else None
        self.services.state_events.emit(
            self.services.world, self._claimed, "executing_tool" if tool else "thinking", tool
        )

    async def fail(self, request: CallRequest, code: str, message: str) -> CallResult:
        """Record that a step has failed, whose result cannot be recorded. Raises TurnLost, AgentFailed."""
        result = CallResult(request.call_id, "failed", None, error_of(code, message, is_recoverable=False))
        await self.record(request, result, [self.resulted(request, result)])
        return result

    async def refuse(
        self, request: CallRequest, error: JsonObject, status: Literal["failed", "canceled"] = "failed"
    ) -> CallResult:
        """Record that a call is not made, in one commit: there is no intent of it. Raises TurnLost, AgentFailed.

        The log says nothing of a child: there is none.
        """
        self._cancel_flag.check()
        result = CallResult(request.call_id, status, None, error)
        drafts = [] if request.kind == "child" else [self._called(request), self.resulted(request, result)]
        await self.record(request, result, drafts, is_made=False)
        self._not_made.append(Wait(request.call_id, request.tool, "inline", "resolved", self._claimed.epoch, status=status,
                                   content={"error": error}))  # fmt: skip
        return result

    async def begin(self, request: CallRequest, reserve: Mapping[str, int] | None = None) -> CallResult | None:
        """Commit the intent. None: it may be done now; else what is known of it. Raises TurnLost, AgentFailed.

        reserve: what it may use. Raises BudgetExceeded where a budget has less left.
        """
        self._cancel_flag.check()
        begun = await store_call(self._begin(request, reserve))
        if begun.outcome == "stale":
            raise turn_lost(self.turn_id)
        if begun.budget is not None:
            raise BudgetExceeded(begun.message, tool=request.tool, call_id=request.call_id, error=budget_error(begun))
        if begun.outcome == "refused":
            raise StepNotStarted(f"step {request.tool} was not begun: {begun.message}", code=RESOURCE_EXHAUSTED)
        return _recorded_result(request, begun) if begun.outcome in ("done", "in_doubt") else None

    async def record(
        self, request: CallRequest, result: CallResult, drafts: list[Draft], used: Mapping[str, int] | None = None, *,
        is_made: bool = True,
    ) -> None:  # fmt: skip
        """Commit the result, with what is said of it, and what it used of what it reserved. Raises TurnLost, AgentFailed."""
        await self.services.world.failpoint("before_record")
        more: dict[str, Any] = {} if used is None else {"used": dict(used)}
        if not is_made:
            more["not_made"] = {"step_id": request.step_id, "tool": request.tool, "taint": list(self.taint.sources)}
        written = await store_call(self.signals.commit(partial(self._record, result, more), drafts))
        if written.outcome == "refused":
            code = RESOURCE_EXHAUSTED if written.code == "too_many_waits" else written.code
            raise AgentFailed(f"the result of step {request.tool} was not taken: {written.message}", code=code)

    async def _begin(self, request: CallRequest, reserve: Mapping[str, int] | None) -> BeginResult:
        await self.services.world.failpoint("before_begin")
        return await self.services.ledger.begin_call(self.intent(request, reserve))

    async def _record(
        self,
        result: CallResult,
        more: Mapping[str, Any],
        signals_emitted: int,
        drafts: list[dict[str, object]],
        _first: int,
    ) -> WriteResult:
        return await self.services.ledger.record_call({**self.record_item(result, signals_emitted, drafts), **more})

    def intent(self, request: CallRequest, reserve: Mapping[str, int] | None) -> dict[str, Any]:
        intent = {
            **owner_fields(self._claimed), "call_id": request.call_id, "step_id": request.step_id, "tool": request.tool,
            "effect": request.effect, "timeout_seconds": request.timeout_seconds, "is_trusted": request.is_trusted,
        }  # fmt: skip
        self._sources_before[request.call_id] = len(self.taint.sources)
        if self.taint.has_read:
            intent["taint"] = list(self.taint.sources)
        return intent if reserve is None else {**intent, "reserve": dict(reserve)}

    def record_item(self, result: CallResult, signals_emitted: int, drafts: list[dict[str, object]]) -> dict[str, Any]:
        item = {
            **owner_fields(self._claimed), "call_id": result.call_id, "status": result.status, "result": result.output,
            "error": result.error, "signals": drafts, "said": signals_emitted,
        }  # fmt: skip
        sources = self.taint.sources
        has_read_more = len(sources) > self._sources_before.get(result.call_id, len(sources))
        return (
            {**item, "taint": list(sources)} if has_read_more else item
        )  # the function of the step has read untrusted content

    def _called(self, request: CallRequest) -> Draft:
        """A step in the log is what any call is there; whoever follows sees it while it is under way. The arguments of
        `ctx.step` are not told: they may be anything, secrets too."""
        payload: JsonObject = {"id": request.call_id, "name": request.tool, "input": truncated(request.input)}
        return self._draft("tool:call", payload)

    def resulted(self, request: CallRequest, result: CallResult) -> Draft:
        payload: JsonObject = {"id": result.call_id, "name": request.tool, "status": result.status}
        payload |= {"output": truncated(result.output)} if result.status == "success" else {"error": result.error}
        return self._draft("tool:result", payload, is_untrusted=not request.is_trusted)

    def _draft(self, name: str, payload: JsonObject, *, is_untrusted: bool = False) -> Draft:
        agent, now = self._claimed.agent, self.services.world.now()
        return Draft(name, payload, agent, self._claimed.activation_id, now, is_untrusted)


async def store_call(work: Awaitable[T]) -> T:
    """The answer of a kernel call that an agent waits for. What the store says of itself is no failure of the agent."""
    try:
        return await work
    except StoreUnavailable as error:
        raise TurnAbandoned(f"given up, the store cannot be asked: {error.message}") from error
    except KernelRejected as error:
        raise AgentFailed("the store refused what this step was to write; the worker's log says why") from error


def budget_error(answer: BeginResult | WriteResult) -> JsonObject:
    """The error of a call that is not made because of a budget, as it is recorded and told."""
    assert answer.budget is not None
    return {
        **error_of(BUDGET_EXCEEDED, answer.message, is_recoverable=False),
        "budget": msgspec.structs.asdict(answer.budget),
    }


def _recorded_result(request: CallRequest, begin_result: BeginResult) -> CallResult:
    """What is recorded, also of a call in doubt: the same now as whenever the turn resumes."""
    return result_of(
        Wait(
            request.call_id,
            request.tool,
            "inline",
            "resolved",
            0,
            status=begin_result.status,
            content=begin_result.content,
        )
    )
