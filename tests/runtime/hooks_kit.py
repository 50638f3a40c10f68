"""Shared by the tests of agents with hooks: an agent whose hooks record their runs and follow the script of the test."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from heliograph import Heliograph
from heliograph.phases import GoalAchieved, ModelStep, PhaseContext, Plan
from heliograph.signals.model import Signal
from tests.runtime.kit import START, names

ORDER = ["init", "plan", "act", "reflect", "terminate"]
PHASES = ["ready", "plan_ready", "action_complete", "reflection_complete", "terminated"]
RESULTS: dict[str, Callable[[], Any]] = {
    "plan": lambda: Plan([ModelStep("work")]),
    "act": lambda: "done",
    "reflect": lambda: GoalAchieved(0.5),
}

Does = Callable[[PhaseContext], Awaitable[Any]]


class Hooked:
    """`does`: what a hook does, by its phase, beside the default; its result replaces the default one. `ran`: the runs."""

    def __init__(self, phases: list[str] = ORDER, /, **does: Does):
        self.phases = phases
        self.does = does
        self.ran: list[str] = []

    def hook(self, phase: str) -> Any:
        async def run(ctx: PhaseContext) -> Any:
            self.ran.append(phase)
            result = await self.does[phase](ctx) if phase in self.does else None
            return RESULTS[phase]() if result is None and phase in RESULTS else result

        return run

    def app(self, **options: Any) -> Heliograph:
        app = Heliograph("hooked")
        hooks = {phase: self.hook(phase) for phase in self.phases if phase != "act"}
        app.agent(name="worker", activate_on=START, updates="out", **hooks, **options)(self.hook("act"))
        return app


def of_phases(signals: list[Signal]) -> list[str]:
    return [name for name in names(signals) if name in (*PHASES, "error", "halt")]
