"""The shared parts of the simulated agents: the source of their decisions, and their building blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from heliograph.execution.context import Context
from heliograph.testing.oracles.kernel_calls import Oracles
from heliograph.testing.simulator.plan import Plan

T = TypeVar("T")
LONG = 5_000  # characters: too long under a small limit
COURT = "court"  # the pool of some turns and commands; some workers serve it


@dataclass(frozen=True, slots=True)
class Size:
    """How large a simulated world is; shrinking makes it smaller."""

    runs: int = 4
    workers: int = 3
    messages: int = 4  # sent from outside to each run, at most


@dataclass(frozen=True, slots=True)
class Cast:
    """The parts of the simulation that agents use. Some work lasts about `lease_seconds`."""

    plan: Plan
    oracles: Oracles
    lease_seconds: float
    repeats_once: bool = False  # the mutant once_runs_twice: agents that must not run twice are not declared so

    async def work(self, context: Context) -> int:
        """Do nothing for a while, sometimes for longer than a lease; return a number."""
        site = f"work/{context.agent}"
        pace = self.plan.draw(f"{site}/pace")
        if pace > 0.85:
            await context.sleep(self.plan.between(site, 0.5, 1.6) * self.lease_seconds)
        elif pace > 0.2:
            await context.sleep(self.plan.between(site, 0.02, 1.5))
        return 1 + self.plan.index(f"{site}/result", 9)

    def may_fail(self, context: Context, rate: float) -> None:
        if self.plan.draw(f"fail/{context.agent}") < rate:
            raise ValueError(f"{context.agent} fails as planned")

    def pick(self, context: Context, what: str, choices: Sequence[T]) -> T:
        """Choose an option: the same one whenever the turn's function runs again, also in a fork."""
        turn_id = self.oracles.books.first_origin(context.turn_id)
        return choices[int(self.plan.fixed(f"{turn_id}/{what}") * len(choices))]
