"""The world, the ledger and the inputs of a replayed part: everything comes from its script, and nothing leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar

import msgspec

from heliograph import errors
from heliograph.definitions.tool import Tool
from heliograph.errors import HeliographError, TurnTimedOut
from heliograph.execution.packed_commit import as_jsonb
from heliograph.execution.recorded_inputs import Conversations, request_item
from heliograph.execution.run_serializer import RunSerializer
from heliograph.execution.turn_inputs import TurnInputs
from heliograph.ledger.client import Ledger
from heliograph.ports import Chunk, Harness, ModelReply, ModelRequest, TextDelta, ThinkingDelta, ToolCall
from heliograph.recording.detached_world import DetachedWorld, never
from heliograph.recording.script import Key, Missing, Script, key_of_call
from heliograph.records import BeginResult, Card, EarlierTurn, RunView, WriteResult
from heliograph.secrets import Resolver
from heliograph.tools.toolbox import Toolbox
from heliograph.turn.calls import CallRequest, CallResult
from heliograph.types import Json, JsonObject
from heliograph.world.seam import Transaction
from heliograph.world.user_code import within

T = TypeVar("T")
R = TypeVar("R", BeginResult, WriteResult)

TOKEN = "token_replayed_0000000000000000"  # noqa: S105  of calls; a replay reports nothing


class Judge(Protocol):
    """Compares what a replayed part does with its recording."""

    def compare_call(self, entry: Sequence[Any], item: Mapping[str, Any]) -> bool:
        """Compare a kernel call; return whether the part may continue."""
        ...

    def compare_request(self, name: str, recorded: JsonObject, replayed: JsonObject) -> bool:
        """Compare a model request; return whether the part may continue."""
        ...

    def compare_step(self, request: CallRequest) -> bool:
        """Compare the arguments of a step; return whether the part may continue."""
        ...

    def missing(self, what: Key, detail: Json) -> None:
        """Report that the recording has no entry for what the code does now."""
        ...


async def answer_of(script: Script, entry: Sequence[Any]) -> Any:
    """The answer to a call. Raises the recorded exception."""
    kind, _, value = await script.answer(entry[1])
    if kind == "raised":
        raise exception_of(value)
    return value


def exception_of(item: Mapping[str, Any]) -> Exception:
    """A recorded exception, with everything that the runtime reads of it."""
    name, message = str(item["type"]), str(item["message"])
    if "code" in item:
        kind: Any = getattr(errors, name, HeliographError)
        error: Any = kind.__new__(kind)
        HeliographError.__init__(error, message, code=item["code"], hint=item.get("hint"), details=item.get("details"))
        error.recoverable = item["recoverable"]
        for key in ("tokens", "retry_after_seconds"):
            if key in item or kind is errors.HarnessError:
                setattr(error, key, item.get(key))
        return error  # type: ignore[no-any-return]
    base = {"ConnectionError": ConnectionError, "OSError": OSError}.get(str(item.get("base")), Exception)
    raised: Exception = type(name, (base,), {})(message)
    return raised


class ReplayWorld(DetachedWorld):
    """See `heliograph.world.seam.World`."""

    def __init__(self, script: Script, judge: Judge, *, is_observed: bool):
        super().__init__(is_observed=is_observed)
        self._script = script
        self._judge = judge
        self._scopes: dict[int, asyncio.Timeout] = {}
        self._withins = 0
        self._expired: set[int] = set()  # those whose timeout is due before they begin
        self._now: datetime | None = None
        script.on_timeout = self._expire

    def now(self) -> datetime:
        try:
            self._now = datetime.fromisoformat(self._script.value("now")[1])
        except Missing as missing:
            self._judge.missing(("now", missing.args[0]), None)
        return self._now or datetime.fromisoformat("2000-01-01T00:00:00+00:00")

    def monotonic(self) -> float:
        try:
            return float(self._script.value("monotonic")[1])
        except Missing:
            self._judge.missing(("monotonic",), None)
            return 0.0

    def new_id(self, kind: str) -> str:
        if kind == "token":
            return TOKEN
        try:
            return str(self._script.value("id")[2])
        except Missing:
            self._judge.missing(("id", kind), None)
            return f"{kind}_unrecorded"

    async def sleep(self, seconds: float) -> None:
        try:
            entry = self._script.sleep(seconds)
        except Missing:
            self._judge.missing(("sleep",), seconds)
            await never()
        await answer_of(self._script, entry)

    async def within(self, seconds: float | None, work: Awaitable[T]) -> T:
        self._withins += 1
        is_due = self._withins in self._expired
        scope = self._scopes[self._withins] = asyncio.timeout(0 if is_due else None)
        return await within(None, self._scoped(scope, seconds, work))

    async def _scoped(self, scope: asyncio.Timeout, seconds: float | None, work: Awaitable[T]) -> T:
        try:
            async with scope:
                return await work
        except TimeoutError:
            if scope.expired():
                raise TurnTimedOut(f"it took longer than {seconds or 0:g} s") from None
            raise

    async def run_sync(self, function: Callable[..., T], *args: object, ended: Callable[[], None] | None = None) -> T:
        try:
            entry = self._script.call(("thread",))
        except Missing:
            self._judge.missing(("thread",), None)
            await never()
        try:
            return function(*args)
        finally:
            await self._script.answer(entry[1])
            if ended is not None:
                ended()

    def _expire(self, number: int) -> None:
        if (scope := self._scopes.get(number)) is not None:
            scope.reschedule(asyncio.get_running_loop().time())
        else:
            self._expired.add(number)


class ReplayedLedger(Ledger):
    """The ledger of a replayed part: calls are compared, and answered from the recording."""

    _has_all_turns = False  # the conversation that an earlier version recorded has no further turns

    def __init__(self, world: ReplayWorld, project: str, script: Script, judge: Judge):
        self.world = world
        self.project = project
        self._script = script
        self._judge = judge

    async def append(self, item: dict[str, Any]) -> WriteResult:
        return await self._call("append", item, WriteResult)

    async def begin_call(self, item: dict[str, Any]) -> BeginResult:
        return await self._call("begin_call", item, BeginResult)

    async def record_call(self, item: dict[str, Any]) -> WriteResult:
        return await self._call("record_call", item, WriteResult)

    async def record_call_in(self, transaction: Transaction, item: dict[str, Any]) -> WriteResult:
        return await self._call("record_call", item, WriteResult)

    async def suspend(self, item: dict[str, Any]) -> WriteResult:
        return await self._call("suspend", item, WriteResult)

    async def defer(self, item: dict[str, Any]) -> WriteResult:
        return await self._call("defer", item, WriteResult)

    async def finish(self, item: dict[str, Any]) -> WriteResult:
        return await self._call("finish", item, WriteResult)

    def pages_of_box(self, box_id: str) -> AsyncIterator[list[Card]]:
        return self._pages(box_id)

    async def _pages(self, box_id: str) -> AsyncIterator[list[Card]]:
        pages = await self._answer("read_box", {"box_id": box_id})
        for page in msgspec.convert(as_jsonb(pages), list[list[Card]]):
            yield page

    async def earlier_turns(self, run_id: str, agent: str, before: int, limit: int) -> list[EarlierTurn]:
        """The turns that were read. An earlier version recorded how many it asked for, 20 at a time; this one may ask for more at once."""
        turns, key = list[EarlierTurn](), key_of_call("read_conversation", {})
        while True:
            entry = self._script.next_call(key)
            if entry is None and self._has_all_turns:
                return turns
            item = {"agent": agent, "before": turns[-1].seq if turns else before}
            page = msgspec.convert(as_jsonb(await self._answer("read_conversation", item)), list[EarlierTurn])
            turns += page
            asked = limit if entry is None else entry[3].get("limit", limit)
            self._has_all_turns = "limit" in entry[3] and (not page or 1 < len(page) < asked) if entry else False
            if asked >= limit or not page or self._script.next_call(key) is None:
                return turns

    async def _call(self, function: str, item: Mapping[str, Any], kind: type[R]) -> R:
        return msgspec.convert(as_jsonb(await self._answer(function, item)), kind)

    async def _answer(self, function: str, item: Mapping[str, Any]) -> Any:
        key = key_of_call(function, item)
        try:
            entry = self._script.call(key)
        except Missing:
            self._judge.missing(key, {**item})
            await never()
        if not self._judge.compare_call(entry, item):
            await never()
        return await answer_of(self._script, entry)


class ReplayedInputs(TurnInputs):
    """The inputs of a replayed turn. No step runs, and no model is called."""

    def __init__(self, script: Script, judge: Judge, toolbox: Toolbox):
        self._script = script
        self._judge = judge
        self._toolbox = toolbox
        self._conversations = Conversations()
        self._has_read_view = False

    async def step(
        self, world: Any, request: CallRequest, function: Callable[..., Any], args: tuple[Any, ...]
    ) -> CallResult:
        if not self._judge.compare_step(request):
            await never()
        found = await self._answer(("step", request.call_id), {"tool": request.tool, "input": request.input})
        return CallResult(request.call_id, found["status"], found["output"], found["error"])

    def harness(self, harness_of: Callable[[Any], Harness], model: Any) -> Harness:
        try:
            entry = self._script.value("harness")
        except Missing:
            self._judge.missing(("harness",), str(model))
            entry = ("harness", "unrecorded")
        if entry[1] is None:
            raise exception_of(entry[2])
        kind = _PricedHarness if self._script.has_values("cost") else _ReplayedHarness
        return kind(str(entry[1]), self._script, self._judge, self._conversations)

    async def tools(self, toolbox: Toolbox, toolset: Any) -> Sequence[Tool]:
        return [_tool_of(item, toolset) for item in await self._answer(("tools",), None)]

    def problem_of_credentials(self, names: Sequence[str], secrets: Resolver | None) -> str | None:
        if not names:
            return None
        try:
            problem: str | None = self._script.value("credentials")[1]
        except Missing:
            self._judge.missing(("credentials",), list(names))
            return None
        return problem

    def newest(self, serializer: RunSerializer, view: RunView) -> tuple[RunView, str | None]:
        try:
            _, newest, *follows = self._script.value("view")
        except Missing:
            if not self._has_read_view:
                self._judge.missing(("view",), None)
            return view, None  # earlier versions read it once, and after a conflict used the run of the answer
        self._has_read_view = True
        return view if newest is None else msgspec.convert(as_jsonb(newest), RunView), follows[0] if follows else None

    async def clean_up(self, work: Callable[[], Awaitable[None]]) -> None:
        await self._answer(("cleanup",), None)

    async def _answer(self, key: Key, detail: Json) -> Any:
        try:
            entry = self._script.call(key)
        except Missing:
            self._judge.missing(key, detail)
            await never()
        return await answer_of(self._script, entry)


class _ReplayedHarness:
    def __init__(self, name: str, script: Script, judge: Judge, conversations: Conversations):
        self.model = name
        self._script = script
        self._judge = judge
        self._conversations = conversations

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        try:
            entry = self._script.call(("model",))
        except Missing:
            self._judge.missing(("model", self.model), request_item(request))
            await never()
        if not self._judge.compare_request(self.model, self._conversations.whole(entry[4]), request_item(request)):
            await never()
        while True:
            kind, _, value = await self._script.answer(entry[1])
            match kind:
                case "text":
                    yield TextDelta(value)
                case "thinking":
                    yield ThinkingDelta(value)
                case "reply":
                    yield _reply_of(value)
                    return
                case _:
                    raise exception_of(value)


def _reply_of(value: dict[str, Any]) -> ModelReply:
    calls = tuple(ToolCall(call["id"], call["tool"], call["arguments"]) for call in value["tool_calls"])
    return ModelReply(**{**value, "tool_calls": calls})


class _PricedHarness(_ReplayedHarness):
    def cost_at_most(self, input_tokens: int, output_tokens: int) -> float | None:
        """Return the recorded price."""
        try:
            cost: float | None = self._script.value("cost")[1]
        except Missing:
            self._judge.missing(("cost",), None)
            return None
        return cost


def _tool_of(item: JsonObject, toolset: Any) -> Tool:
    """A recorded tool of a toolset. Its function is never called, because a replay runs no step."""

    async def unreachable(**arguments: Json) -> Json:
        raise AssertionError("a replay runs no tool")

    values: dict[str, Any] = {**item, "function": unreachable}
    if values["approval"] is None:
        values["approval"] = getattr(toolset, "approval", False)
    return Tool(**values)
