"""The agent loop as a worker receives it: the phases that need a model or tools, with the harness of each model."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from heliograph.agent_loop.loop import run_agent_loop
from heliograph.agent_loop.model_call import HarnessOf
from heliograph.agent_loop.model_phases import plan_with_model, reflect_with_model
from heliograph.agent_loop.plan_checks import check_plan
from heliograph.agent_loop.plan_execution import execute_plan
from heliograph.definitions.plan import GoalAchieved, IterationNeeded, Plan
from heliograph.execution.call_replay import CallReplay
from heliograph.execution.context import Context
from heliograph.execution.model_agent import AgentOutput
from heliograph.execution.owned_turn import OwnedTurn
from heliograph.execution.phase_context import PhaseContext
from heliograph.types import Json


@dataclass(frozen=True, slots=True)
class ModelAgentLoop:
    """Run agents with models, for the execution of turns, which only knows the protocol AgentLoop. harness_of: returns the harness of a model."""

    harness_of: HarnessOf

    async def act(self, owned: OwnedTurn, context: Context, replay: CallReplay) -> AgentOutput:
        return await run_agent_loop(owned, context, replay, harness_of=self._of(owned))

    async def plan(self, owned: OwnedTurn, context: PhaseContext, replay: CallReplay) -> Json:
        return await plan_with_model(owned, context, replay, harness_of=self._of(owned))

    def check_plan(self, owned: OwnedTurn, plan: Plan) -> None:
        check_plan(owned, plan, harness_of=self._of(owned))

    async def execute(self, owned: OwnedTurn, context: PhaseContext, replay: CallReplay) -> AgentOutput:
        return await execute_plan(owned, context, replay, harness_of=self._of(owned))

    async def reflect(
        self, owned: OwnedTurn, context: PhaseContext, replay: CallReplay
    ) -> GoalAchieved | IterationNeeded:
        return await reflect_with_model(owned, context, replay, harness_of=self._of(owned))

    def _of(self, owned: OwnedTurn) -> HarnessOf:
        """The harnesses as the turn receives them; a recorded turn records their replies."""
        return partial(owned.inputs.harness, self.harness_of)
