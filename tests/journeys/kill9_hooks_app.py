"""`python -m tests.journeys.kill9_hooks_app RUN_ID`: one process that runs an agent with hooks in front of its caller.

The process kills itself at the first place that no process before it has reached; KILL9_FOLDER notes the places. Each hook
appends its name to the file `effects` there, in a step. Prints the outcome and the state.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from heliograph import Heliograph, Step
from heliograph.agents import Agent
from heliograph.phases import GoalAchieved, IterationNeeded, ModelStep, PhaseContext, Plan
from heliograph.world.real import RealWorld

FOLDER = Path(os.environ["KILL9_FOLDER"])
LEASE_SECONDS = 0.5
app = Heliograph("kill9-hooks")


def die_once(place: str) -> None:
    try:
        (FOLDER / "places" / place).touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def append(name: str) -> None:
    with (FOLDER / "effects").open("a") as file:
        file.write(f"{name}\n")


async def take_effect(ctx: PhaseContext) -> str:
    """The effect of a hook. The process may die before it and after it."""
    name = f"{ctx.phase}-{ctx.iteration}"
    die_once(f"{name}-begins")
    await ctx.step(Step("append", effect="once"), append, name)
    die_once(f"{name}-did")
    ctx.working_memory["did"] = [*ctx.working_memory.get("did", []), name]
    if ctx.phase in ("plan", "act"):
        await ctx.pause(0.01)  # the turn changes its worker in the middle of a hook
        die_once(f"{name}-resumed")
    return name


@app.agent(activate_on=["workflow:start"], updates="did", max_attempts=100)
class Reviewer(Agent):
    async def init(self, ctx: PhaseContext) -> None:
        await take_effect(ctx)

    async def plan(self, ctx: PhaseContext) -> Plan:
        return Plan([ModelStep(await take_effect(ctx))])

    async def act(self, ctx: PhaseContext) -> list[str]:
        await take_effect(ctx)
        did: list[str] = ctx.working_memory["did"]
        return did

    async def reflect(self, ctx: PhaseContext) -> GoalAchieved | IterationNeeded:
        await take_effect(ctx)
        return GoalAchieved() if ctx.iteration else IterationNeeded("once more")

    async def terminate(self, ctx: PhaseContext) -> None:
        await take_effect(ctx)


async def failpoint(_world: RealWorld, name: str) -> None:
    """Die before each commit that ends a phase, and before the commit that ends the turn."""
    if name == "before_phase_end":
        effects = (FOLDER / "effects").read_text().split()
        die_once(f"{effects[-1]}-unrecorded")
    elif name == "before_finish":
        die_once("unfinished")


async def main() -> None:
    setattr(RealWorld, "failpoint", failpoint)  # noqa: B010  mypy refuses the assignment
    result = await app.run({}, run_id=sys.argv[1], lease_seconds=LEASE_SECONDS)
    print(json.dumps([result.outcome, result.state]))


if __name__ == "__main__":
    asyncio.run(main())
