"""The part of an agent that needs a model or tools; the execution of a turn receives it from the worker."""

from __future__ import annotations

from typing import Any, Protocol

from msgspec import Struct

from heliograph.definitions.plan import Plan
from heliograph.execution.call_replay import CallReplay
from heliograph.execution.context import Context
from heliograph.execution.owned_turn import OwnedTurn
from heliograph.execution.phase_context import PhaseContext
from heliograph.types import Json, JsonObject


class AgentOutput(Struct, frozen=True):
    """The output of an agent loop. is_partial: a limit cut its work short. limit: that limit, as an error object."""

    output: Json
    is_partial: bool = False
    limit: JsonObject | None = None


class AgentLoop(Protocol):
    """How the execution of turns runs agents with models. Each method raises the errors of a harness, AgentFailed, Suspended."""

    async def act(self, owned: OwnedTurn, context: Context, replay: CallReplay) -> AgentOutput:
        """Run an agent that has a prompt."""
        ...

    async def plan(self, owned: OwnedTurn, context: PhaseContext, replay: CallReplay) -> Json:
        """The plan of an agent's model."""
        ...

    def check_plan(self, owned: OwnedTurn, plan: Plan) -> None:
        """Raise AgentFailed (`PLAN_FAILED`) for a plan that names a tool, an agent or a model that does not exist."""
        ...

    async def execute(self, owned: OwnedTurn, context: PhaseContext, replay: CallReplay) -> AgentOutput:
        """Execute the plan of an agent without a function."""
        ...

    async def reflect(self, owned: OwnedTurn, context: PhaseContext, replay: CallReplay) -> Any:
        """The decision of an agent's model."""
        ...
