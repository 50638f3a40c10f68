"""The ledger and the inputs of a turn that is replayed from what the ledger has: results come in, and nothing leaves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from heliograph.definitions.tool import Tool
from heliograph.execution.tape import without_intents
from heliograph.ports import Harness
from heliograph.recording.detached_turn import DetachedInputs, DetachedLedger
from heliograph.recording.logged_replies import LoggedHarness, ReplyJudge
from heliograph.records import BeginResult, Card, EarlierTurn, WriteResult
from heliograph.turn.calls import CallRequest, CallResult
from heliograph.world.seam import Transaction, World


class TurnJudge(ReplyJudge, Protocol):
    """Compares what a turn does with what the ledger and the log have of it. A turn that diverges never continues."""

    async def commit(self, item: Mapping[str, Any]) -> None:
        """Compare the signals of a kernel call."""
        ...

    async def begin(self, item: Mapping[str, Any]) -> BeginResult:
        """Compare the intent of a step."""
        ...

    async def record(self, item: Mapping[str, Any]) -> None:
        """Compare the record of a step."""
        ...

    async def suspend(self, item: Mapping[str, Any]) -> WriteResult:
        """Compare the calls for which the turn waits, and answer with their results."""
        ...

    async def step(self, request: CallRequest) -> CallResult:
        """Compare the arguments of a step, and return its result."""
        ...

    def deferred(self) -> None:
        """The turn is deferred."""
        ...

    async def finish(self, item: Mapping[str, Any]) -> WriteResult:
        """Compare the end of the turn."""
        ...


class LedgerOfTurn(DetachedLedger):
    """The ledger of a turn that is replayed from its calls."""

    def __init__(
        self, world: World, project: str, judge: TurnJudge, boxes: Mapping[str, Sequence[Card]], earlier: Sequence[EarlierTurn] = ()
    ):  # fmt: skip
        super().__init__(world, project, boxes, earlier)
        self._judge = judge

    async def append(self, item: dict[str, Any]) -> WriteResult:
        await self._judge.commit(item)
        return _ok(item)

    async def begin_call(self, item: dict[str, Any]) -> BeginResult:
        return await self._judge.begin(item)

    async def record_call(self, item: dict[str, Any]) -> WriteResult:
        await self._judge.record(without_intents(item))  # each call that follows is compared when it begins
        return _ok(item)

    async def record_call_in(self, transaction: Transaction, item: dict[str, Any]) -> WriteResult:
        return await self.record_call(item)

    async def suspend(self, item: dict[str, Any]) -> WriteResult:
        return await self._judge.suspend(item)

    async def defer(self, item: dict[str, Any]) -> WriteResult:
        self._judge.deferred()
        return WriteResult(item["turn_id"], "deferred")

    async def finish(self, item: dict[str, Any]) -> WriteResult:
        return await self._judge.finish(item)


class InputsOfTurn(DetachedInputs):
    """The inputs of a turn that is replayed from its calls. No step runs, and no model is reached."""

    def __init__(self, judge: TurnJudge, server_tools: Mapping[int, Sequence[Tool]]):
        super().__init__(server_tools)
        self._judge = judge

    async def step(
        self, world: World, request: CallRequest, function: Callable[..., Any], args: tuple[Any, ...]
    ) -> CallResult:
        return await self._judge.step(request)

    def harness(self, harness_of: Callable[[Any], Harness], model: Any) -> Harness:
        return LoggedHarness(str(getattr(model, "model", model)), self._judge)


def _ok(item: Mapping[str, Any]) -> WriteResult:
    return WriteResult(item["turn_id"], "ok", first_seq=1)
