"""An application whose agent has all hooks, and up to three rounds. Each hook notes its effect in the working memory."""

from __future__ import annotations

from typing import Any

from heliograph.app import Heliograph
from heliograph.definitions.hooks import Agent
from heliograph.definitions.lifecycle import Lifecycle
from heliograph.definitions.plan import GoalAchieved, IterationNeeded, ModelStep, Plan
from heliograph.execution.phase_context import PhaseContext
from heliograph.ports import MemoryHit
from heliograph.testing.scenarios.building_blocks import Cast
from heliograph.turn.step_options import Step
from heliograph.types import JsonObject


class Decisions:
    """The memory of all simulated processes, by the ids of its entries."""

    def __init__(self) -> None:
        self._stored: dict[str, JsonObject] = {}

    async def store(self, _project: str, memory_id: str, _agent: str | None, _text: str, metadata: JsonObject) -> None:
        self._stored[memory_id] = metadata

    async def search(self, _project: str, _agent: str | None, _query: str, _limit: int) -> list[MemoryHit]:
        return []

    def outcomes_of(self, turn_id: str) -> list[Any]:
        return [entry["outcome"] for entry in self._stored.values() if entry["task_id"] == turn_id]


def desk(cast: Cast) -> Heliograph:
    """An agent whose hooks work, wait, fail and are deferred. Rules: each hook takes effect once, on any worker; its signal occurs once
    (LC-22, LC-32, LC-52); each decision is stored once (LC-41)."""
    decisions = Decisions()
    app = Heliograph("desk", reducers={"total": lambda old, new: old + new}, memory=decisions)

    async def done(context: PhaseContext) -> None:
        """Work, sometimes wait, and note the end of the hook."""
        await cast.work(context)
        if cast.pick(context, f"{context.phase}/pause", (True, False)):
            await context.pause(cast.plan.between("desk/pause", 0.01, 2.0))
        context.working_memory.setdefault("ran", []).append(f"{context.phase} {context.iteration}")

    @app.agent(activate_on=["workflow:start"], updates="total", lifecycle=Lifecycle(max_iterations=3), max_attempts=20)
    class Clerk(Agent):
        async def init(self, context: PhaseContext) -> None:
            if context.deferrals == 0 and cast.plan.draw("desk/refused") < 0.2:
                raise ConnectionError("refused as planned")
            await done(context)

        async def plan(self, context: PhaseContext) -> Plan:
            await context.step(Step("look", effect="pure"), lambda: 1)
            await done(context)
            return Plan([ModelStep("work")])

        async def act(self, context: PhaseContext) -> int:
            context.progress(0.5)
            cast.may_fail(context, 0.05)
            await done(context)
            return 1

        async def reflect(self, context: PhaseContext) -> GoalAchieved | IterationNeeded:
            await done(context)
            rounds = cast.pick(context, "rounds", (1, 2, 2, 3))
            resume_at = cast.pick(context, "resume", ("plan", "act"))
            return GoalAchieved() if context.iteration + 1 == rounds else IterationNeeded("again", resume_at)  # type: ignore[arg-type]

        async def terminate(self, context: PhaseContext) -> None:
            if context.outcome == "success":
                begins = (
                    ("plan", "act", "reflect")
                    if cast.pick(context, "resume", ("plan", "act")) == "plan"
                    else ("act", "reflect")
                )
                later = [f"{phase} {n}" for n in range(1, context.iteration + 1) for phase in begins]
                expected = ["init 0", "plan 0", "act 0", "reflect 0", *later]
                if context.working_memory["ran"] != expected:
                    cast.oracles.blame(
                        "hook_effect", f"{context.turn_id}: {context.working_memory['ran']}, not {expected}"
                    )
                outcomes = [*["iteration_needed"] * context.iteration, "goal_achieved"]
                if (stored := decisions.outcomes_of(context.turn_id)) != outcomes:
                    cast.oracles.blame("hook_effect", f"{context.turn_id} stored {stored}, not {outcomes}")
                cast.oracles.count(f"hooks in {context.iteration + 1} rounds")

    return app
