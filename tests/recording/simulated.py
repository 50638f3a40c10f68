"""Record a run with the testing kit: a simulation in virtual time, in which tasks run in the order of a seed, with faults if wanted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from heliograph import Heliograph
from heliograph.recording.recording import Recording
from heliograph.testing import ServedApplication, Simulation
from heliograph.testing.kernel.in_memory import InMemoryKernel
from heliograph.testing.simulation.scenario_run import Case, run_scenario

T = TypeVar("T")
RUN = "run_one"


def record_simulated(app: Heliograph, seed: int, **options: Any) -> Recording:
    """Run an application to its end, and return the recording of the run. options: those of `simulated`."""
    return simulated(app, seed, _recording, **options)


def simulated(
    app: Heliograph, seed: int, then: Callable[[Simulation, ServedApplication], Awaitable[T]], *, state: Any = None, workers: int = 2,
    faults: bool = False, in_order: bool = False, record: bool = True, answers: bool = True,
) -> T:  # fmt: skip
    """Start a run, and return the result of `then`, which may wait for its end.

    in_order: tasks run in the order in which they become ready, as in any loop of asyncio; so they do with faults. answers: somebody
    grants what the run asks people.
    """

    async def scenario(sim: Simulation) -> T:
        served = sim.serve(app)
        await served.start({"text": "hello"} if state is None else state, run_id=RUN, record=record)
        if answers:
            sim.spawn("ann", _grant_all(served))
        return await then(sim, served)

    case = Case(seed, None if faults else frozenset(), frozenset() if faults or in_order else None)
    done = run_scenario(scenario, case, workers=workers, dies=faults)
    if done.error is not None:
        raise done.error
    return cast(T, done.value)


def kernel_of(sim: Simulation) -> InMemoryKernel:
    return cast(InMemoryKernel, sim._stage.backend)


async def _recording(_sim: Simulation, served: ServedApplication) -> Recording:
    await served.result(RUN)
    return await served.recording(RUN)


async def _grant_all(served: ServedApplication) -> None:
    async for _ in served.client.follow(RUN):
        for task in await served.client.approvals(RUN):
            await served.client.grant(task.turn_id, task.call_id, by="ann")
