"""Commit the intent of a step before its effect, and its result afterwards.

A worker that dies in between leaves an intent without a result. The kernel answers the next owner `again` where the
effect may be repeated, and `in_doubt` where it may not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import Any, Literal, TypeVar

import msgspec

from heliograph.codes import BUDGET_EXCEEDED, CIRCUIT_OPEN, RATE_LIMITED, RESOURCE_EXHAUSTED
from heliograph.definitions.circuit_breakers import breaker_item
from heliograph.errors import AgentFailed, BudgetExceeded, CircuitOpen, KernelRejected, RateLimited, StoreUnavailable
from heliograph.execution.owned_turn import OwnedTurn
from heliograph.execution.step_outcome import error_of
from heliograph.records import BeginResult, Wait, WriteResult
from heliograph.signals.model import Draft
from heliograph.signals.payload import truncated
from heliograph.turn.calls import CallRequest, CallResult, attempt_of, result_of
from heliograph.turn.input_hash import INPUT_HASH, input_hash
from heliograph.turn.interruptions import TurnAbandoned
from heliograph.types import JsonObject

_TOOL_CALLS = "tool_calls"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NextCall:
    """A call that begins in the commit of a result. reads: the untrusted sources that the turn reads before it."""

    request: CallRequest
    reserve: Mapping[str, int] | None = None
    reads: Sequence[str] = ()


class StepNotStarted(AgentFailed):
    """This step did not begin, because the turn has reached its limit of calls."""


class StepRecorder:
    """Begins the steps of one owned turn and records their results.

    tool_reserve: the part of the budget that a tool call reserves; None without such a budget.
    """

    def __init__(self, owned: OwnedTurn):
        self._claimed = owned.claimed
        self.turn_id = owned.claimed.turn_id
        self.ledger = owned.ledger
        self.signals = owned.signals
        self.world = owned.world
        self.taint = owned.taint
        self.inputs = owned.inputs
        self._cancel_flag = owned.cancel_flag
        self._rejected = owned.rejected
        self._sources_before: dict[str, int] = {}  # by call id: how many sources the turn had read when the call began
        self._begun: dict[str, tuple[dict[str, Any], BeginResult]] = {}  # by call id: begun with the result before
        self.tool_reserve = {_TOOL_CALLS: 1} if _TOOL_CALLS in (owned.claimed.budget or {}) else None

    async def fail(self, request: CallRequest, code: str, message: str) -> CallResult:
        """Record a failure in place of a result that cannot be recorded. Raises TurnLost, AgentFailed."""
        result = CallResult(request.call_id, "failed", None, error_of(code, message, is_recoverable=False))
        await self.record(request, result, [self.resulted(request, result)])
        return result

    async def reject(
        self, request: CallRequest, error: JsonObject, status: Literal["failed", "canceled"] = "failed"
    ) -> CallResult:
        """Record the rejection of a call that has not begun. Raises TurnLost, AgentFailed.

        A rejected delegation has no child, and therefore no signals in the log.
        """
        self._cancel_flag.check()
        result = CallResult(request.call_id, status, None, error)
        drafts = [] if request.kind == "child" else [self._called(request), self.resulted(request, result)]
        await self.record(request, result, drafts, opens=True)
        self._rejected.append(Wait(request.call_id, request.tool, "inline", "resolved", self._claimed.epoch, status=status,
                                   content={"error": error}))  # fmt: skip
        return result

    async def log(self, request: CallRequest, draft: Draft) -> None:
        """Commit a signal at once, as a call without an effect, so that no later run logs it again. Raises TurnLost, AgentFailed."""
        self._cancel_flag.check()
        await self.record(request, CallResult(request.call_id, "success", None), [draft], opens=True)

    async def begin(self, request: CallRequest, reserve: Mapping[str, int] | None = None) -> CallResult | None:
        """Commit the intent, and wait for the start that the rate limits give the step.

        Returns None where the step may run now, otherwise its recorded result. reserve: the amounts that the step may use. Raises
        BudgetExceeded where less is left, CircuitOpen, RateLimited, TurnLost, AgentFailed.
        """
        self._cancel_flag.check()
        item = self.intent_item(request, reserve)
        begun = await store_call(self._begin(item, *self._begun.pop(request.call_id, (None, None))))
        if begun.budget is not None:
            raise BudgetExceeded(begun.message, tool=request.tool, call_id=request.call_id, error=budget_error(begun))
        if begun.code == CIRCUIT_OPEN:
            raise CircuitOpen(
                begun.message,
                tool=request.tool,
                call_id=request.call_id,
                error=circuit_error(begun.message, begun.circuit),
            )
        if begun.code == RATE_LIMITED:
            assert begun.rate is not None
            error = rate_error(begun.message, begun.rate)
            raise RateLimited(begun.message, tool=request.tool, call_id=request.call_id, error=error)
        if begun.outcome == "rejected":
            raise StepNotStarted(f"step {request.tool} did not start: {begun.message}", code=RESOURCE_EXHAUSTED)
        if begun.outcome in ("done", "in_doubt"):
            return _recorded_result(request, begun)
        if begun.rate is not None and begun.rate["wait_seconds"] > 0:
            await self.world.sleep(begun.rate["wait_seconds"])
            return await self.begin(request, reserve)  # another worker may own the turn by now
        return None

    async def record(
        self, request: CallRequest, result: CallResult, drafts: list[Draft], used: Mapping[str, int] | None = None, *,
        opens: bool = False, rate_tokens: int | None = None, following: Sequence[NextCall] = (),
    ) -> None:  # fmt: skip
        """Commit a result with its signals, and the intents of the calls that follow. Raises TurnLost, AgentFailed.

        used: the amounts that the step used of its reserve. opens: the step has no intent, because it has no effect. rate_tokens: the
        actual tokens of a model call, which replace the estimate in its rate limits.
        """
        await self.world.failpoint("before_record")
        more: dict[str, Any] = {} if used is None else {"used": dict(used)}
        if rate_tokens is not None:
            more["rate_tokens"] = rate_tokens
        if opens:
            more["open_as"] = {"step_id": request.step_id, "tool": request.tool, "taint": list(self.taint.sources)}
        if following:
            more["intents"] = [self.intent_item(call.request, call.reserve, call.reads) for call in following]
        written = await store_call(self.signals.commit(partial(self._record, result, more), drafts))
        if written.outcome == "rejected":
            code = RESOURCE_EXHAUSTED if written.code == "too_many_waits" else written.code
            raise AgentFailed(f"the result of step {request.tool} was rejected: {written.message}", code=code)
        for item, begun in zip(more.get("intents", ()), written.begun, strict=False):  # a lost reply has none
            self._begun[item["call_id"]] = item, begun

    async def _begin(
        self, item: Mapping[str, Any], given: Mapping[str, Any] | None, answer: BeginResult | None
    ) -> BeginResult:
        """Begin a call, unless it has begun: as `given`, with this answer."""
        if answer is not None and given == item:
            return await self.ledger.begun(item, answer)
        await self.world.failpoint("before_begin")
        return await self.ledger.begin_call(item)

    async def _record(
        self,
        result: CallResult,
        more: Mapping[str, Any],
        signals_emitted: int,
        drafts: list[dict[str, object]],
        _first: int,
    ) -> WriteResult:
        return await self.ledger.record_call({**self.record_item(result, signals_emitted, drafts), **more})

    def intent_item(
        self, request: CallRequest, reserve: Mapping[str, int] | None, reads: Sequence[str] = ()
    ) -> dict[str, Any]:
        """The item of begin_call. reads: see NextCall."""
        item: dict[str, Any] = {
            "call_id": request.call_id, "step_id": request.step_id, "tool": request.tool, "effect": request.effect,
            "timeout_seconds": request.timeout_seconds, "is_trusted": request.is_trusted,
        }  # fmt: skip
        sources = list(dict.fromkeys((*self.taint.sources, *reads)))
        self._sources_before[request.call_id] = len(sources)
        if sources:
            item["taint"] = sources
        if request.circuit_breaker is not None:
            kind, target = (request.kind, request.tool) if request.model is None else ("model", request.model)
            item["circuit_breaker"] = breaker_item(request.circuit_breaker, kind, target)
        if request.rates:
            item["rates"] = [rate.item() for rate in request.rates]
        return item if reserve is None else {**item, "reserve": dict(reserve)}

    def record_item(self, result: CallResult, signals_emitted: int, drafts: list[dict[str, object]]) -> dict[str, Any]:
        item: dict[str, Any] = {
            "call_id": result.call_id, "status": result.status, "result": result.output, "error": result.error,
            "signals": drafts, "signals_emitted": signals_emitted,
        }  # fmt: skip
        sources = self.taint.sources
        has_read_more = len(sources) > self._sources_before.get(result.call_id, len(sources))
        return {**item, "taint": list(sources)} if has_read_more else item  # the step itself read untrusted content

    def announce(self, request: CallRequest) -> None:
        """Log that a step runs now, for observers."""
        self.signals.add_urgent(self._called(request))

    def _called(self, request: CallRequest) -> Draft:
        """The signal of a call. Steps of `ctx.step` log no arguments, which may contain secrets, but their hash."""
        payload: JsonObject = {"id": request.call_id, "name": request.tool, "input": truncated(request.input)}
        is_hashed = bool(request.arguments) and request.attempt == 1  # an attempt may have changed them
        if is_hashed and (found := input_hash(request.arguments)) is not None:
            payload[INPUT_HASH] = found
        return self._draft("tool:call", payload | attempt_of(request))

    def resulted(self, request: CallRequest, result: CallResult) -> Draft:
        payload: JsonObject = {"id": result.call_id, "name": request.tool, "status": result.status}
        payload |= {"output": truncated(result.output)} if result.status == "success" else {"error": result.error}
        return self._draft("tool:result", payload, is_untrusted=not request.is_trusted)

    def _draft(self, name: str, payload: JsonObject, *, is_untrusted: bool = False) -> Draft:
        agent, now = self._claimed.agent, self.world.now()
        return Draft(name, payload, agent, self._claimed.activation_id, now, is_untrusted)


async def store_call(work: Awaitable[T]) -> T:
    """The answer of a kernel call that an agent waits for.

    Raises TurnAbandoned where the store is out of reach, AgentFailed where it rejects the call.
    """
    try:
        return await work
    except StoreUnavailable as error:
        raise TurnAbandoned(f"abandoned, because the store is out of reach: {error.message}") from error
    except KernelRejected as error:
        raise AgentFailed("the store rejected a write of this step; the worker's log has the reason") from error


def budget_error(answer: BeginResult | WriteResult) -> JsonObject:
    """The error of a call that a budget does not allow."""
    assert answer.budget is not None
    return {
        **error_of(BUDGET_EXCEEDED, answer.message, is_recoverable=False),
        "budget": msgspec.structs.asdict(answer.budget),
    }


def circuit_error(message: str, circuit: Mapping[str, Any] | None) -> JsonObject:
    """The error of a call that a circuit breaker does not admit. Its details have the time until the breaker may admit one."""
    assert circuit is not None
    details = {"retry_after_ms": ceil(circuit["retry_seconds"] * 1000)}
    return {**error_of(CIRCUIT_OPEN, message, is_recoverable=True, details=details), "circuit": dict(circuit)}


def rate_error(message: str, rate: Mapping[str, Any]) -> JsonObject:
    """Return the error of a call that a rate limit rejects. Its details have the delay after which the limit may admit the call."""
    seconds = rate["retry_seconds"]
    details = None if seconds is None else {"retry_after_ms": ceil(seconds * 1000)}
    return {**error_of(RATE_LIMITED, message, is_recoverable=seconds is not None, details=details), "rate": dict(rate)}


def _recorded_result(request: CallRequest, begin_result: BeginResult) -> CallResult:
    """The recorded result, also of a call in doubt: the same whenever the turn resumes."""
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
