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
from heliograph.errors import AgentFailed, BudgetExceeded, KernelRefused, StoreUnavailable
from heliograph.execution.owned_turn import Held
from heliograph.execution.ownership import GivenUp, gate_of, lost
from heliograph.execution.step_events import tell_step
from heliograph.execution.step_outcome import error_of, outcome_of
from heliograph.execution.transactional_steps import in_transaction
from heliograph.records import Begun, Wait, Written
from heliograph.signals.model import Draft
from heliograph.signals.payload import carried
from heliograph.turn.calls import Asked, CallResult, result_of
from heliograph.types import JsonObject

_TOOL_CALLS = "tool_calls"

T = TypeVar("T")


class NotBegun(AgentFailed):
    """The turn may have no more calls: nothing of this one has happened."""


class Steps:
    """The steps of one owned turn."""

    def __init__(self, held: Held):
        self._claimed = held.claimed
        self.turn_id = held.claimed.turn_id
        self.voice = held.voice
        self.kit = held.kit
        self._halt = held.halt
        self.taint = held.taint
        self._not_made = held.not_made
        self._sources_before: dict[str, int] = {}  # how many sources the turn had read when it began a call, by call id
        self._in_flight: set[asyncio.Future[None]] = set()
        self._running: list[str] = []  # the tools that have started and have no result yet, in the order of their start
        self.tool_reserve = {_TOOL_CALLS: 1} if _TOOL_CALLS in (held.claimed.budget or {}) else None

    async def settled(self) -> None:
        """Return when no step is between its intent and its result."""
        while self._in_flight:
            await asyncio.wait(self._in_flight)

    async def run(self, asked: Asked, function: Callable[..., Any], args: tuple[Any, ...]) -> CallResult:
        """Begin, do and record one step; or what is known of it, where it began before. Raises TurnLost, AgentFailed."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._in_flight.add(done)
        try:
            try:
                known = await self.begin(asked, self.tool_reserve)
            except BudgetExceeded as error:
                return await self.refuse(asked, error.error)
            if known is not None:
                return known
            self.voice.say_now(self._called(asked))
            tell_step(self.kit.world, self._claimed, asked.step_id, self.voice.phase)
            return await self._observed(asked, function, args)
        finally:
            self._in_flight.discard(done)
            done.cancel()

    async def _observed(self, asked: Asked, function: Callable[..., Any], args: tuple[Any, ...]) -> CallResult:
        """Run and record a step that has begun; state events name the tool that runs meanwhile, and then the next activity."""
        self._running.append(asked.tool)
        self._emit_activity()
        try:
            if asked.effect == "transactional":
                return await in_transaction(self, asked, function, args)
            result = await outcome_of(self.kit.world, asked, function, args)
            await self.record(asked, result, [self.resulted(asked, result)])
            return result
        finally:
            self._running.remove(asked.tool)
            self._emit_activity()

    def _emit_activity(self) -> None:
        tool = self._running[-1] if self._running else None
        self.kit.state_events.emit(self.kit.world, self._claimed, "executing_tool" if tool else "thinking", tool)

    async def fail(self, asked: Asked, code: str, message: str) -> CallResult:
        """Record that a step has failed, whose result cannot be recorded. Raises TurnLost, AgentFailed."""
        result = CallResult(asked.call_id, "failed", None, error_of(code, message, is_recoverable=False))
        await self.record(asked, result, [self.resulted(asked, result)])
        return result

    async def refuse(
        self, asked: Asked, error: JsonObject, status: Literal["failed", "canceled"] = "failed"
    ) -> CallResult:
        """Record that a call is not made, in one commit: there is no intent of it. Raises TurnLost, AgentFailed.

        The log says nothing of a child: there is none.
        """
        self._halt.check()
        result = CallResult(asked.call_id, status, None, error)
        drafts = [] if asked.kind == "child" else [self._called(asked), self.resulted(asked, result)]
        await self.record(asked, result, drafts, is_made=False)
        self._not_made.append(Wait(asked.call_id, asked.tool, "inline", "resolved", self._claimed.epoch, status=status,
                                   content={"error": error}))  # fmt: skip
        return result

    async def begin(self, asked: Asked, reserve: Mapping[str, int] | None = None) -> CallResult | None:
        """Commit the intent. None: it may be done now; else what is known of it. Raises TurnLost, AgentFailed.

        reserve: what it may use. Raises BudgetExceeded where a budget has less left.
        """
        self._halt.check()
        begun = await reached(self._begin(asked, reserve))
        if begun.outcome == "stale":
            raise lost(self.turn_id)
        if begun.budget is not None:
            raise BudgetExceeded(begun.message, tool=asked.tool, call_id=asked.call_id, error=lack_of(begun))
        if begun.outcome == "refused":
            raise NotBegun(f"step {asked.tool} was not begun: {begun.message}", code=RESOURCE_EXHAUSTED)
        return _known(asked, begun) if begun.outcome in ("done", "in_doubt") else None

    async def record(
        self, asked: Asked, result: CallResult, drafts: list[Draft], used: Mapping[str, int] | None = None, *,
        is_made: bool = True,
    ) -> None:  # fmt: skip
        """Commit the result, with what is said of it, and what it used of what it reserved. Raises TurnLost, AgentFailed."""
        await self.kit.world.point("before_record")
        more: dict[str, Any] = {} if used is None else {"used": dict(used)}
        if not is_made:
            more["not_made"] = {"step_id": asked.step_id, "tool": asked.tool, "taint": list(self.taint.sources)}
        written = await reached(self.voice.commit(partial(self._record, result, more), drafts))
        if written.outcome == "refused":
            code = RESOURCE_EXHAUSTED if written.code == "too_many_waits" else written.code
            raise AgentFailed(f"the result of step {asked.tool} was not taken: {written.message}", code=code)

    async def _begin(self, asked: Asked, reserve: Mapping[str, int] | None) -> Begun:
        await self.kit.world.point("before_begin")
        return await self.kit.ledger.begin_call(self.intent(asked, reserve))

    async def _record(
        self, result: CallResult, more: Mapping[str, Any], said: int, drafts: list[dict[str, object]], _first: int
    ) -> Written:
        return await self.kit.ledger.record_call({**self.item(result, said, drafts), **more})

    def intent(self, asked: Asked, reserve: Mapping[str, int] | None) -> dict[str, Any]:
        intent = {
            **gate_of(self._claimed), "call_id": asked.call_id, "step_id": asked.step_id, "tool": asked.tool,
            "effect": asked.effect, "timeout_seconds": asked.timeout_seconds, "is_trusted": asked.is_trusted,
        }  # fmt: skip
        self._sources_before[asked.call_id] = len(self.taint.sources)
        if self.taint.has_read:
            intent["taint"] = list(self.taint.sources)
        return intent if reserve is None else {**intent, "reserve": dict(reserve)}

    def item(self, result: CallResult, said: int, drafts: list[dict[str, object]]) -> dict[str, Any]:
        item = {
            **gate_of(self._claimed), "call_id": result.call_id, "status": result.status, "result": result.output,
            "error": result.error, "signals": drafts, "said": said,
        }  # fmt: skip
        sources = self.taint.sources
        has_read_more = len(sources) > self._sources_before.get(result.call_id, len(sources))
        return (
            {**item, "taint": list(sources)} if has_read_more else item
        )  # the function of the step has read untrusted content

    def _called(self, asked: Asked) -> Draft:
        """A step in the log is what any call is there; whoever follows sees it while it is under way. The arguments of
        `ctx.step` are not told: they may be anything, secrets too."""
        said: JsonObject = {"id": asked.call_id, "name": asked.tool, "input": carried(asked.input)}
        return self._draft("tool:call", said)

    def resulted(self, asked: Asked, result: CallResult) -> Draft:
        said: JsonObject = {"id": result.call_id, "name": asked.tool, "status": result.status}
        said |= {"output": carried(result.output)} if result.status == "success" else {"error": result.error}
        return self._draft("tool:result", said, is_untrusted=not asked.is_trusted)

    def _draft(self, name: str, said: JsonObject, *, is_untrusted: bool = False) -> Draft:
        agent, now = self._claimed.agent, self.kit.world.now()
        return Draft(name, said, agent, self._claimed.activation_id, now, is_untrusted)


async def reached(work: Awaitable[T]) -> T:
    """The answer of a kernel call that an agent waits for. What the store says of itself is no failure of the agent."""
    try:
        return await work
    except StoreUnavailable as error:
        raise GivenUp(f"given up, the store cannot be asked: {error.message}") from error
    except KernelRefused as error:
        raise AgentFailed("the store refused what this step was to write; the worker's log says why") from error


def lack_of(answer: Begun | Written) -> JsonObject:
    """The error of a call that is not made because of a budget, as it is recorded and told."""
    assert answer.budget is not None
    return {
        **error_of(BUDGET_EXCEEDED, answer.message, is_recoverable=False),
        "budget": msgspec.structs.asdict(answer.budget),
    }


def _known(asked: Asked, begun: Begun) -> CallResult:
    """What is recorded, also of a call in doubt: the same now as whenever the turn resumes."""
    return result_of(
        Wait(asked.call_id, asked.tool, "inline", "resolved", 0, status=begun.status, content=begun.content)
    )
