"""The ledger and the inputs of a turn that is replayed or checked: they reach no database, server or model. Subclasses answer the calls."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

from heliograph.definitions.tool import Tool
from heliograph.errors import SetupError
from heliograph.execution.run_serializer import RunSerializer
from heliograph.execution.turn_inputs import TurnInputs
from heliograph.ledger.client import Ledger
from heliograph.records import Card, EarlierTurn, RunView
from heliograph.secrets import Resolver
from heliograph.tools.toolbox import Toolbox
from heliograph.world.seam import World


class DetachedLedger(Ledger):
    """A ledger without a connection. boxes: the cards that its turn may read, by the ids of their boxes. earlier: the turns of its
    conversation, the newest first."""

    def __init__(
        self, world: World, project: str, boxes: Mapping[str, Sequence[Card]], earlier: Sequence[EarlierTurn] = ()
    ):
        self.world = world
        self.project = project
        self._boxes = boxes
        self._earlier = earlier

    def pages_of_box(self, box_id: str) -> AsyncIterator[list[Card]]:
        return self._pages(box_id)

    async def earlier_turns(self, run_id: str, agent: str, before: int, limit: int) -> list[EarlierTurn]:
        return [turn for turn in self._earlier if turn.seq < before][:limit]

    async def _pages(self, box_id: str) -> AsyncIterator[list[Card]]:
        yield list(self._boxes.get(box_id, ()))


class DetachedInputs(TurnInputs):
    """Inputs that reach no tool server and need no credential.

    server_tools: the tools of each tool server of the turn's agent, by the server's identity.
    """

    def __init__(self, server_tools: Mapping[int, Sequence[Tool]]):
        self._server_tools = server_tools

    async def tools(self, toolbox: Toolbox, toolset: Any) -> Sequence[Tool]:
        return self._server_tools[id(toolset)]

    def problem_of_credentials(self, names: Sequence[str], secrets: Resolver | None) -> str | None:
        return None  # workers have them

    def newest(self, serializer: RunSerializer, view: RunView) -> tuple[RunView, str | None]:
        return view, None

    async def clean_up(self, work: Callable[[], Awaitable[None]]) -> None:
        """Nothing is cleaned up."""


def no_harness(model: Any) -> Any:
    """The harness of a turn that reaches no model. Raises SetupError."""
    raise SetupError("a replay calls no model")
