"""Run a scenario once: in virtual time, with the faults and the schedule of a case, under the oracles."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar

from heliograph.testing.kernel.in_memory import InMemoryKernel
from heliograph.testing.oracles.final_state import check_logs
from heliograph.testing.oracles.kernel_calls import Oracles
from heliograph.testing.simulation.no_network import without_network
from heliograph.testing.simulation.patience import PatientStage
from heliograph.testing.simulation.process_loop import AfterStep, EndlessSimulation, ProcessLoop
from heliograph.testing.simulation.simulation import LEASE_SECONDS, PROJECT, Simulation
from heliograph.testing.simulator.event_loop import SimDeadlock
from heliograph.testing.simulator.plan import Plan
from heliograph.testing.simulator.simulate import RATES, is_work_done, undisturbed

T = TypeVar("T")
Scenario: TypeAlias = Callable[[Simulation], Awaitable[T]]

FAULTY_SECONDS = 60.0  # of virtual time; then faults end, so that all work can end
_STEPS_MAX = 250_000
_SETTLE_SECONDS = 120
_RATES = {kind: rate for kind, rate in RATES.items() if kind not in ("early_report", "bell_lost")}


@dataclass(frozen=True, slots=True)
class Case:
    """The inputs of a simulation: the same case gives the same trace.

    faults, deviations: None for all of the seed, else only these (see `simulator.plan.Plan`).
    """

    seed: int
    faults: frozenset[str] | None = None
    deviations: frozenset[int] | None = None


CALM = Case(0, frozenset(), frozenset())


@dataclass(slots=True)
class ScenarioRun(Generic[T]):
    """What a scenario returned or raised, and what happened meanwhile. error: its own, or that of a broken rule."""

    case: Case
    value: T | None
    error: BaseException | None
    effects: Counter[str]
    trace_hash: str
    faults: list[str] = field(default_factory=list)
    deviations: list[int] = field(default_factory=list)
    events: list[str] = field(default_factory=list)


def run_scenario(
    scenario: Scenario[T], case: Case, *, workers: int = 1, dies: bool = False, after_step: AfterStep | None = None
) -> ScenarioRun[T]:
    """Run a scenario. dies: workers may die. after_step: see `ProcessLoop`. Call it where no event loop is running."""
    __tracebackhide__ = True
    plan = Plan(case.seed, _RATES, FAULTY_SECONDS, faults=case.faults, deviations=case.deviations)
    loop = ProcessLoop(plan.choose, _STEPS_MAX)
    loop.after_step = after_step
    kernel = InMemoryKernel()
    oracles = Oracles(kernel, PROJECT)
    stage = PatientStage(
        loop, plan, kernel, oracles, lease_seconds=LEASE_SECONDS, keeps_trace=False, project=PROJECT
    )  # fmt: skip
    done: ScenarioRun[T] = ScenarioRun(case, None, None, Counter(), "")
    simulation: Simulation | None = None
    with undisturbed(), without_network(), _seeded(case.seed):
        try:
            simulation = Simulation(stage, workers=workers, dies=dies)
            done.value = loop.run_until_complete(_result_of(scenario, simulation, stage, oracles))
        except SimDeadlock:
            assert simulation is not None
            done.error = AssertionError("\n  ".join(
                ["nothing can happen any more, and the test still waits; a simulation has no network, no threads of your own and no subprocesses",
                 *simulation.open_work()]))  # fmt: skip
        except EndlessSimulation:
            assert simulation is not None
            done.error = AssertionError("\n  ".join(
                [f"the test does not end: {_STEPS_MAX} steps, {loop.time() / 3600:.1f} virtual hours", *simulation.open_work()]))  # fmt: skip
        except BaseException as error:  # pytest's own failures are no exceptions
            done.error = error
        finally:
            loop.drop_everything()
            loop.close()
    if loop.rejected and done.error is None:
        done.error = loop.rejected[0]
    elif loop.rejected and done.error is not loop.rejected[0] and done.error is not None:
        done.error.add_note(str(loop.rejected[0]))
    if done.error is None and oracles.violations:
        first = oracles.violations[0]
        done.error = AssertionError(f"Heliograph itself broke a rule, please report it: {first.kind}: {first.detail}")
    done.effects = Counter() if simulation is None else simulation.effects
    done.trace_hash, done.faults, done.deviations = stage.trace_hash, plan.fired, plan.deviated
    done.events = stage.events_around_last_fault()
    return done


async def _result_of(scenario: Scenario[T], simulation: Simulation, stage: PatientStage, oracles: Oracles) -> T:
    __tracebackhide__ = True
    outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    async def run() -> None:
        __tracebackhide__ = True
        try:
            value = await scenario(simulation)
        except BaseException as error:  # raised below, where it is awaited
            outcome.set_exception(error)
        else:
            outcome.set_result(value)

    simulation.spawn("the test", run())
    value = await outcome
    for _ in range(_SETTLE_SECONDS):
        if is_work_done(stage, oracles, PROJECT) or oracles.violations:
            break
        await asyncio.sleep(1.0)
    check_logs(oracles, simulation.workflows, is_quiet=is_work_done(stage, oracles, PROJECT))
    return value


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Let the module `random`, which agents may use, give the same numbers each time."""
    state = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(state)
