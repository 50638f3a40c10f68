"""Steps: effects that an agent's function has here and now, once (K13, K14).

The intent is committed before the effect and the result after it. A worker that dies in between leaves an intent
without a result: the next owner is told `again` where the effect may be repeated, and `in_doubt` where it may not.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import msgspec

from heliograph.codes import BUDGET_EXCEEDED, RESOURCE_EXHAUSTED, TOOL_ERROR, TOOL_TIMEOUT
from heliograph.errors import (
    AgentFailed,
    BudgetExceeded,
    HeliographError,
    InvalidInput,
    KernelRefused,
    StepInDoubt,
    StoreUnavailable,
    ToolFailed,
    TurnTimedOut,
    told,
)
from heliograph.reactive.state import DOCUMENT_BYTES_MAX, check_size, to_json
from heliograph.records import Begun, CallStatus, Wait, Written
from heliograph.redaction import redacted, redacted_text
from heliograph.signals.model import Draft
from heliograph.signals.payload import carried, cleaned, is_longer
from heliograph.turn.calls import Asked, CallResult, result_of
from heliograph.types import Json, JsonObject
from heliograph.worker.held import Held
from heliograph.worker.kit import TurnLost, gate_of, lost
from heliograph.worker.telling import tell_step
from heliograph.world import Transaction

_CERTAIN = ("pure", "idempotent", "transactional")  # nothing is in doubt when one of these is given up
_TRIES = 3
_AT_ONCE_MAX = 65_536  # bytes of a result that is written here and now
_LOST = "connection_lost"
_TOOL_CALLS = "tool_calls"
_inside: ContextVar[bool] = ContextVar("heliograph_inside_step", default=False)


T = TypeVar("T")


def is_inside_step() -> bool:
    """Whether whoever asks is the function of a step, or something that it has started."""
    return _inside.get()


class Steps:
    """The steps of one owned turn."""

    def __init__(self, held: Held):
        self._claimed = held.claimed
        self._voice = held.voice
        self._kit = held.kit
        self._halt = held.halt
        self._in_flight: set[asyncio.Future[None]] = set()
        self._tool_reserve = {_TOOL_CALLS: 1} if _TOOL_CALLS in (held.claimed.budget or {}) else None

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
                known = await self.begin(asked, self._tool_reserve)
            except BudgetExceeded as error:
                return await self.refuse(asked, error.error)
            if known is not None:
                return known
            self._voice.say_now(self._called(asked))
            tell_step(self._kit.world, self._claimed, asked.step_id, self._voice.phase)
            if asked.effect == "transactional":
                return await self._do_in_transaction(asked, function, args)
            result = await self._do(asked, function, args)
            await self.record(asked, result, [self._resulted(asked, result)])
            return result
        finally:
            self._in_flight.discard(done)
            done.cancel()

    async def fail(self, asked: Asked, code: str, message: str) -> CallResult:
        """Record that a step has failed, whose result cannot be recorded. Raises TurnLost, AgentFailed."""
        result = CallResult(asked.call_id, "failed", None, _error(code, message, is_recoverable=False))
        await self.record(asked, result, [self._resulted(asked, result)])
        return result

    async def refuse(self, asked: Asked, error: JsonObject) -> CallResult:
        """Record that a tool is not called. Raises TurnLost, AgentFailed.

        What is left of tool calls never grows, so it is not called later either, should a worker be lost in between.
        """
        await self.begin(replace(asked, effect="pure", timeout_seconds=None))
        result = CallResult(asked.call_id, "failed", None, error)
        await self.record(asked, result, [self._called(asked), self._resulted(asked, result)])
        return result

    async def begin(self, asked: Asked, reserve: Mapping[str, int] | None = None) -> CallResult | None:
        """Commit the intent. None: it may be done now; else what is known of it. Raises TurnLost, AgentFailed.

        reserve: what it may use. Raises BudgetExceeded where a budget has less left.
        """
        self._halt.check()
        begun = await reached(self._begin(asked, reserve))
        if begun.outcome == "stale":
            raise lost(self._claimed.turn_id)
        if begun.budget is not None:
            raise BudgetExceeded(begun.message, tool=asked.tool, call_id=asked.call_id, error=lack_of(begun))
        if begun.outcome == "refused":
            raise AgentFailed(f"step {asked.tool} was not begun: {begun.message}", code=RESOURCE_EXHAUSTED)
        return _known(asked, begun) if begun.outcome in ("done", "in_doubt") else None

    async def record(
        self, asked: Asked, result: CallResult, drafts: list[Draft], used: Mapping[str, int] | None = None
    ) -> None:
        """Commit the result, with what is said of it, and what it used of what it reserved. Raises TurnLost, AgentFailed."""
        await self._kit.world.point("before_record")
        written = await reached(self._voice.commit(partial(self._record, result, used), drafts))
        if written.outcome == "refused":
            raise AgentFailed(f"the result of step {asked.tool} was not taken: {written.message}", code=written.code)

    async def _do_in_transaction(self, asked: Asked, function: Callable[..., Any], args: tuple[Any, ...]) -> CallResult:
        """Commit the effect and its result together, or neither; the function's first argument is the connection.

        Whatever it raises undoes the effect, and is recorded by itself. Raises TurnLost, AgentFailed.
        """
        for _ in range(_TRIES):
            try:
                async with self._kit.world.transaction() as transaction:
                    result = await self._do(asked, function, (transaction.connection, *args))
                    outcome = "undone"
                    if result.status == "success":
                        outcome = await self._commit(transaction, asked, result)
            except StoreUnavailable as error:
                raise TurnLost(f"given up, the store cannot be asked: {error.message}") from error
            except KernelRefused as error:  # of a transaction that cannot be committed nothing has happened
                message = f"it was undone: {error.message}"
                result = CallResult(asked.call_id, "failed", None, _error(TOOL_ERROR, message, is_recoverable=True))
                outcome = "undone"
            if outcome == "undone":
                await self.record(asked, result, [self._resulted(asked, result)])
            if outcome in ("ok", "undone"):
                return result
            if (known := await self.begin(asked, self._tool_reserve)) is not None:
                return known
        raise TurnLost(f"given up, step {asked.tool} could not be committed {_TRIES} times")

    async def _commit(self, transaction: Transaction, asked: Asked, result: CallResult) -> str:
        """'ok', 'duplicate', or 'lost': the connection broke, and nothing of it is there. Raises also what the store says."""

        async def send(said: int, drafts: list[dict[str, object]], _first: int) -> Written:
            try:
                return await self._kit.ledger.record_call_in(transaction, self._item(result, said, drafts))
            except StoreUnavailable:
                # either both are there or neither, and only the kernel knows
                begun = await self._kit.ledger.begin_call(self._intent(asked, self._tool_reserve))
                outcome = {"done": "duplicate", "stale": "stale"}.get(begun.outcome, "refused")
                return Written(self._claimed.turn_id, outcome, code=_LOST)  # type: ignore[arg-type]

        await self._kit.world.point("before_record")
        written = await self._voice.commit(send, [self._resulted(asked, result)])
        if written.outcome == "refused" and written.code != _LOST:
            raise AgentFailed(f"the result of step {asked.tool} was not taken: {written.message}", code=written.code)
        return "lost" if written.outcome == "refused" else written.outcome

    async def _begin(self, asked: Asked, reserve: Mapping[str, int] | None) -> Begun:
        await self._kit.world.point("before_begin")
        return await self._kit.ledger.begin_call(self._intent(asked, reserve))

    async def _do(self, asked: Asked, function: Callable[..., Any], args: tuple[Any, ...]) -> CallResult:
        """The effect itself, as a result. What the function raises is a result, too."""
        token = _inside.set(True)
        try:
            made = await self._kit.world.within(asked.timeout_seconds, self._invoke(function, args))
            output = await self._written(made, f"what step {asked.tool} returned")
        except TurnTimedOut as error:
            # it was given up in the middle: whether it happened is known only of what may be repeated, or is undone
            status: CallStatus = "timeout" if asked.effect in _CERTAIN else "unknown"
            return CallResult(asked.call_id, status, None, _error(TOOL_TIMEOUT, error.message, is_recoverable=True))
        except StepInDoubt as error:  # the function says so itself: it was cut off from whoever does it
            return CallResult(asked.call_id, "unknown", None, _error(error.code, error.message, is_recoverable=False))
        except HeliographError as error:
            code = error.code if error.code.isupper() or isinstance(error, ToolFailed) else TOOL_ERROR  # a tool's own
            return CallResult(
                asked.call_id, "failed", None, _error(code, error.message, is_recoverable=error.recoverable)
            )
        except Exception as error:
            return CallResult(asked.call_id, "failed", None, _error(TOOL_ERROR, told(error), is_recoverable=True))
        finally:
            _inside.reset(token)
        return CallResult(asked.call_id, "success", output)

    async def _invoke(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        if inspect.iscoroutinefunction(function):
            return await function(*args)
        result = await self._kit.world.run_sync(function, *args)
        return await result if inspect.isawaitable(result) else result

    async def _written(self, made: Any, what: str) -> Json:
        """A result as JSON. A large one in a thread: nothing else of this process would go on meanwhile."""

        def write() -> Json:
            if is_longer(made, DOCUMENT_BYTES_MAX):
                raise InvalidInput(f"{what} has over {DOCUMENT_BYTES_MAX} bytes, which is the limit; keep large things "
                                   "elsewhere and their names here", code="too_large", path="/output")  # fmt: skip
            output: Json = redacted(to_json(made))  # the model is told what is recorded
            check_size(output, what, "/output")
            return output

        return await self._kit.world.run_sync(write) if is_longer(made, _AT_ONCE_MAX) else write()

    async def _record(
        self,
        result: CallResult,
        used: Mapping[str, int] | None,
        said: int,
        drafts: list[dict[str, object]],
        _first: int,
    ) -> Written:
        item = self._item(result, said, drafts)
        return await self._kit.ledger.record_call(item if used is None else {**item, "used": dict(used)})

    def _intent(self, asked: Asked, reserve: Mapping[str, int] | None) -> dict[str, Any]:
        intent = {
            **gate_of(self._claimed), "call_id": asked.call_id, "step_id": asked.step_id, "tool": asked.tool,
            "effect": asked.effect, "timeout_seconds": asked.timeout_seconds,
        }  # fmt: skip
        return intent if reserve is None else {**intent, "reserve": dict(reserve)}

    def _item(self, result: CallResult, said: int, drafts: list[dict[str, object]]) -> dict[str, Any]:
        return {
            **gate_of(self._claimed), "call_id": result.call_id, "status": result.status, "result": result.output,
            "error": result.error, "signals": drafts, "said": said,
        }  # fmt: skip

    def _called(self, asked: Asked) -> Draft:
        """A step in the log is what any call is there; whoever follows sees it while it is under way. The arguments of
        `ctx.step` are not told: they may be anything, secrets too."""
        said: JsonObject = {"id": asked.call_id, "name": asked.tool, "input": carried(asked.input)}
        return self._draft("tool:call", said)

    def _resulted(self, asked: Asked, result: CallResult) -> Draft:
        said: JsonObject = {"id": result.call_id, "name": asked.tool, "status": result.status}
        said |= {"output": carried(result.output)} if result.status == "success" else {"error": result.error}
        return self._draft("tool:result", said)

    def _draft(self, name: str, said: JsonObject) -> Draft:
        return Draft(name, said, self._claimed.agent, self._claimed.activation_id, self._kit.world.now())


async def reached(work: Awaitable[T]) -> T:
    """The answer of a kernel call that an agent waits for. What the store says of itself is no failure of the agent."""
    try:
        return await work
    except StoreUnavailable as error:
        raise TurnLost(f"given up, the store cannot be asked: {error.message}") from error
    except KernelRefused as error:
        raise AgentFailed("the store refused what this step was to write; the worker's log says why") from error


def lack_of(answer: Begun | Written) -> JsonObject:
    """The error of a call that is not made because of a budget, as it is recorded and told."""
    assert answer.budget is not None
    return {
        **_error(BUDGET_EXCEEDED, answer.message, is_recoverable=False),
        "budget": msgspec.structs.asdict(answer.budget),
    }


def _known(asked: Asked, begun: Begun) -> CallResult:
    """What is recorded, also of a call in doubt: the same now as whenever the turn resumes."""
    return result_of(
        Wait(asked.call_id, asked.tool, "inline", "resolved", 0, status=begun.status, content=begun.content)
    )


def _error(code: str, message: str, *, is_recoverable: bool) -> JsonObject:
    told = cleaned(redacted_text(message))
    return {"code": cleaned(code), "message": told, "recoverable": is_recoverable}  # whoever wrote them
