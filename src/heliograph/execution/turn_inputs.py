"""The inputs of a turn that come neither from the world nor from the ledger: steps, models, toolsets, credentials, the newest run.

Production uses `TurnInputs`, which reads them live. `execution.recorded_inputs` reads and records them, and
`heliograph.recording` replays them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from heliograph.definitions.tool import Tool
from heliograph.execution.run_serializer import RunSerializer
from heliograph.execution.step_outcome import outcome_of
from heliograph.ports import Harness
from heliograph.records import RunView
from heliograph.secrets import Resolver
from heliograph.signals.model import Draft
from heliograph.tools.credentials import problem_of_credentials
from heliograph.tools.toolbox import Toolbox
from heliograph.turn.calls import CallRequest, CallResult
from heliograph.turn.journal import Journal
from heliograph.world.seam import World


class TurnInputs:
    """Reads the inputs of one turn live."""

    async def step(
        self, world: World, request: CallRequest, function: Callable[..., Any], args: tuple[Any, ...]
    ) -> CallResult:
        """Run the function of a step; return its result."""
        return await outcome_of(world, request, function, args)

    def harness(self, harness_of: Callable[[Any], Harness], model: Any) -> Harness:
        """Return the harness of a model. Raises the errors of `harness_of`."""
        return harness_of(model)

    async def tools(self, toolbox: Toolbox, toolset: Any) -> Sequence[Tool]:
        """List the tools of a toolset. Raises the errors of `Toolbox.tools_of`."""
        return await toolbox.tools_of(toolset)

    def problem_of_credentials(self, names: Sequence[str], secrets: Resolver | None) -> str | None:
        """Return the message about a missing credential; None if all are there."""
        return problem_of_credentials(names, secrets)

    def newest(self, serializer: RunSerializer, view: RunView) -> tuple[RunView, str | None]:
        """Return the newest version of a run that this worker has, and the turn whose ending will make it; None if it is committed."""
        newest = serializer.newest(view)
        return newest, serializer.followed(newest)

    async def clean_up(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run the cleanup functions of a turn."""
        await work()

    def stopping(self, reason: str) -> None:
        """Note that a stop reaches the turn now."""

    def progress(self, draft: Draft) -> None:
        """Note that the turn reports progress now."""

    def acting(self, journal: Journal) -> None:
        """Note that a run of the agent, or of one of its phases, begins."""

    def prompted(self, call_id: str, marks: Mapping[str, str]) -> None:
        """Note the marks of a model request, whose reply may be recorded."""

    def requested(self, request: CallRequest) -> None:
        """Note that the agent makes a call, which may be recorded."""

    async def suspending(self) -> None:
        """Return when the turn may be suspended."""

    def observer(self, world: World) -> World:
        """Return the world for observers of the turn, whose reads have no effect on it."""
        return world


LIVE = TurnInputs()
