"""The ledger and the inputs of a turn that is replayed from what the ledger has: results come in, and nothing leaves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from heliograph.definitions.tool import Tool
from heliograph.execution.run_serializer import RunSerializer
from heliograph.execution.turn_inputs import TurnInputs
from heliograph.ledger.client import Ledger
from heliograph.ports import Harness
from heliograph.recording.logged_replies import LoggedHarness, ReplyJudge
from heliograph.records import BeginResult, Card, RunView, WriteResult
from heliograph.secrets import Resolver
from heliograph.tools.toolbox import Toolbox
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

    async def result_of(self, call_id: str) -> CallResult:
        """The result of a step."""
        ...

    def prompted(self, call_id: str, marks: Mapping[str, str]) -> None:
        """Compare the marks of a model request."""
        ...

    def deferred(self) -> None:
        """The turn is deferred."""
        ...

    async def finish(self, item: Mapping[str, Any]) -> WriteResult:
        """Compare the end of the turn."""
        ...


class LedgerOfTurn(Ledger):
    """The ledger of a turn that is replayed from its calls."""

    def __init__(self, world: World, project: str, judge: TurnJudge, boxes: Mapping[str, Any]):
        self.world = world
        self.project = project
        self._judge = judge
        self._boxes = boxes

    async def append(self, item: dict[str, Any]) -> WriteResult:
        await self._judge.commit(item)
        return _ok(item)

    async def begin_call(self, item: dict[str, Any]) -> BeginResult:
        return await self._judge.begin(item)

    async def record_call(self, item: dict[str, Any]) -> WriteResult:
        await self._judge.record(item)
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

    def pages_of_box(self, box_id: str) -> AsyncIterator[list[Card]]:
        return self._pages(box_id)

    async def _pages(self, box_id: str) -> AsyncIterator[list[Card]]:
        yield msgspec.convert(self._boxes.get(box_id, []), list[Card])


class InputsOfTurn(TurnInputs):
    """The inputs of a turn that is replayed from its calls. No step runs, and no model and no tool server is reached.

    server_tools: the tools of each tool server of its agent, by the server's identity.
    """

    def __init__(self, judge: TurnJudge, server_tools: Mapping[int, Sequence[Tool]]):
        self._judge = judge
        self._server_tools = server_tools

    async def step(
        self, world: World, request: CallRequest, function: Callable[..., Any], args: tuple[Any, ...]
    ) -> CallResult:
        return await self._judge.result_of(request.call_id)

    def harness(self, harness_of: Callable[[Any], Harness], model: Any) -> Harness:
        return LoggedHarness(str(getattr(model, "model", model)), self._judge)

    async def tools(self, toolbox: Toolbox, toolset: Any) -> Sequence[Tool]:
        return self._server_tools[id(toolset)]

    def problem_of_credentials(self, names: Sequence[str], secrets: Resolver | None) -> str | None:
        return None

    def prompted(self, call_id: str, marks: Mapping[str, str]) -> None:
        self._judge.prompted(call_id, marks)

    def newest(self, serializer: RunSerializer, view: RunView) -> RunView:
        return view

    async def clean_up(self, work: Callable[[], Awaitable[None]]) -> None:
        """Nothing is cleaned up."""


def _ok(item: Mapping[str, Any]) -> WriteResult:
    return WriteResult(item["turn_id"], "ok", first_seq=1)
