"""The world, the ledger and the inputs of a checked turn: recorded results come in, and nothing leaves.

Everything that the ledger does not have yet is new work. It never begins: its task waits until the check of the turn ends.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from typing import Any, NoReturn, Protocol, TypeVar

from heliograph.definitions.tool import Tool
from heliograph.ports import Chunk, Harness, ModelRequest
from heliograph.recording.detached_turn import DetachedInputs, DetachedLedger
from heliograph.records import BeginResult, Card, WriteResult
from heliograph.turn.calls import CallRequest, CallResult
from heliograph.turn.journal import Journal
from heliograph.types import JsonObject
from heliograph.world.seam import World

T = TypeVar("T")


class Judge(Protocol):
    """Follows a checked turn, and decides whether it diverges."""

    def acting(self, journal: Journal) -> None:
        """A run of the agent begins."""
        ...

    def requested(self, request: CallRequest) -> None:
        """The agent makes a call."""
        ...

    def prompted(self, call_id: str, marks: Mapping[str, str]) -> None:
        """The agent would make a model request with these marks."""
        ...

    async def new_work(self, what: str | None) -> NoReturn:
        """The turn does what is not recorded, or waits for a result."""
        ...

    async def suspends(self) -> NoReturn:
        """The turn waits for its calls."""
        ...

    async def defers(self) -> NoReturn:
        """The turn is deferred."""
        ...

    async def ends(self, outcome: str, error: JsonObject | None) -> NoReturn:
        """The turn ends."""
        ...


class CheckedLedger(DetachedLedger):
    """The ledger of a checked turn."""

    def __init__(
        self, world: World, project: str, judge: Judge, recorded: Collection[str], boxes: Mapping[str, Sequence[Card]]
    ):
        """recorded: the ids of the turn's calls."""
        super().__init__(world, project, boxes)
        self._judge = judge
        self._recorded = recorded

    async def append(self, item: dict[str, Any]) -> WriteResult:
        return WriteResult(item["turn_id"], "ok", first_seq=1)

    async def begin_call(self, item: dict[str, Any]) -> BeginResult:
        is_new = item["call_id"] not in self._recorded
        await self._judge.new_work(f"a new call, step {item['tool']}," if is_new else None)

    async def record_call(self, item: dict[str, Any]) -> WriteResult:
        await self._judge.new_work(f"the record of {item['call_id']}")

    async def suspend(self, item: dict[str, Any]) -> WriteResult:
        await self._judge.new_work(None)

    async def defer(self, item: dict[str, Any]) -> WriteResult:
        await self._judge.defers()

    async def finish(self, item: dict[str, Any]) -> WriteResult:
        error = item["content"].get("error")
        await self._judge.ends(item["outcome"], error if isinstance(error, dict) else None)


class CheckedInputs(DetachedInputs):
    """The inputs of a checked turn. No step runs, and no model is reached."""

    def __init__(self, judge: Judge, server_tools: Mapping[int, Sequence[Tool]]):
        super().__init__(server_tools)
        self._judge = judge

    async def step(
        self, world: World, request: CallRequest, function: Callable[..., Any], args: tuple[Any, ...]
    ) -> CallResult:
        raise AssertionError("a check runs no step")

    def harness(self, harness_of: Callable[[Any], Harness], model: Any) -> Harness:
        try:
            name = str(harness_of(model).model)
        except Exception:  # without the key of a provider, the name of its model is enough
            name = str(model)
        return _SilentHarness(name, self._judge)

    def acting(self, journal: Journal) -> None:
        self._judge.acting(journal)

    def requested(self, request: CallRequest) -> None:
        self._judge.requested(request)

    def prompted(self, call_id: str, marks: Mapping[str, str]) -> None:
        self._judge.prompted(call_id, marks)

    async def suspending(self) -> None:
        await self._judge.suspends()


class _SilentHarness:
    def __init__(self, name: str, judge: Judge):
        self.model = name
        self._judge = judge

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        await self._judge.new_work(f"a call of {self.model}")
        yield  # type: ignore[unreachable]
