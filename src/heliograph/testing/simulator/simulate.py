"""Simulate one seed to its verdict: the product's own workers in a world with faults."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from heliograph.agent_loop.model_agent_loop import ModelAgentLoop
from heliograph.control.pool_names import DEFAULT_POOL
from heliograph.execution.project_services import POSTGRES, ProjectServices
from heliograph.ledger.client import Ledger
from heliograph.reactive.workflow import Workflow
from heliograph.testing.kernel.backend import Backend
from heliograph.testing.kernel.tables import EPOCH
from heliograph.testing.oracles.final_state import check_end
from heliograph.testing.oracles.kernel_calls import Oracles
from heliograph.testing.oracles.records import Violation
from heliograph.testing.scenarios.administrator import prune_old_turns, set_limits, use_boxes
from heliograph.testing.scenarios.building_blocks import COURT, Cast, Size
from heliograph.testing.scenarios.clients import answer_ahead, answer_questions, serve_tools, stop_turns_and_runs, visit
from heliograph.testing.scenarios.faulty_owner import err
from heliograph.testing.scenarios.forks import fork_runs
from heliograph.testing.scenarios.guarded_calls import call_guarded
from heliograph.testing.scenarios.hooked_application import desk
from heliograph.testing.scenarios.sessions import converse, parlor
from heliograph.testing.scenarios.workload import make_harness, make_workflows
from heliograph.testing.simulator.event_loop import SimDeadlock, SimLoop
from heliograph.testing.simulator.plan import Plan
from heliograph.testing.simulator.shared_state import Stage
from heliograph.testing.simulator.world import SimWorld
from heliograph.worker.claim_loop import Worker

Visit: TypeAlias = Callable[[SimWorld, Ledger], Coroutine[Any, Any, None]]

PROJECT = "simulated"
LEASE_SECONDS = 4.0
SWEEP_SECONDS = 2.5
HORIZON_SECONDS = 20.0
SETTLE_SECONDS = 160.0
_BESIDE_SHARE = 0.15  # of the processes of workers
_FORKS_SHARE = 0.15
_POOLS = {"w1": (DEFAULT_POOL,)}  # by slot; the other workers serve both

# by kind, at each place where it may happen; a few of each in an ordinary seed
RATES: Mapping[str, float] = {
    "crash": 0.004, "freeze": 0.004, "cut": 0.003, "lost": 0.01, "slow": 0.006, "cut_reply": 0.004, "cut_for_long": 0.001, "lost_reply": 0.012,
    "crash_at_point": 0.02, "freeze_at_point": 0.02, "crash_in_sleep": 0.006, "freeze_in_sleep": 0.006,
    "bell_lost": 0.2, "bell_lost_often": 0.8, "wire_down": 0.05, "retire": 0.3, "early_report": 0.05,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Case:
    """All inputs of a simulation: the same case gives the same trace.

    faults, deviations: None for all of the seed, else only these (see `plan.Plan`).
    maintenance: others prune, and put, fork and replace boxes. Only PostgreSQL can do this.
    repeats_once: the runtime mutant once_runs_twice. hooks: all runs are of the application whose agent has hooks.
    sessions: all runs are sessions.
    """

    seed: int
    size: Size = field(default_factory=Size)
    faults: frozenset[str] | None = None
    deviations: frozenset[int] | None = None
    maintenance: bool = False
    repeats_once: bool = False
    hooks: bool = False
    sessions: bool = False


@dataclass(slots=True)
class Result:
    """The outcome of a case. `violations` is empty for a success; `counters` counts events, `log` is the trace if kept."""

    case: Case
    backend: str
    trace_hash: str
    violations: list[Violation]
    counters: Counter[str]
    faults: list[str]
    deviations: list[int]
    log: list[str]
    calls: int
    turns: int
    virtual_seconds: float

    @property
    def kind(self) -> str | None:
        """The class of the failure: its first violation's."""
        return self.violations[0].kind if self.violations else None

    def line(self) -> str:
        application = " hooks=true" if self.case.hooks else " sessions=true" if self.case.sessions else ""
        return f"HELIOGRAPH_SEED={self.case.seed} backend={self.backend}{application} class={self.kind}"


def simulate(case: Case, backend: Backend, *, keeps_trace: bool = False) -> Result:
    """Run one case to its end on an emptied backend. Call it where no event loop is running."""
    backend.reset()
    backend.call("declare_wire", (PROJECT, POSTGRES), EPOCH)  # so that the oracles see all task events
    plan = Plan(case.seed, RATES, HORIZON_SECONDS, faults=case.faults, deviations=case.deviations)
    loop, oracles = SimLoop(plan.choose), Oracles(backend, PROJECT)
    stage = Stage(loop, plan, backend, oracles, lease_seconds=LEASE_SECONDS, keeps_trace=keeps_trace)
    cast = Cast(plan, oracles, LEASE_SECONDS, repeats_once=case.repeats_once)
    workflows = _workflows(case, cast)
    stage.polls = plan.draw("polls") < 0.75
    with undisturbed():
        try:
            is_quiet = loop.run_until_complete(_play(case, stage, oracles, workflows))
        except SimDeadlock as deadlock:
            is_quiet = False
            oracles.blame("deadlock", str(deadlock))
        finally:
            loop.drop_everything()
            loop.close()
    check_end(oracles, workflows, is_quiet=is_quiet)
    counters = oracles.counters + Counter({f"fault {kind}": count for kind, count in stage.faults.items()})
    return Result(case, backend.name, stage.trace_hash, oracles.violations, counters, plan.fired, plan.deviated, stage.log,
                  stage.calls, len(oracles.books.turns), loop.time())  # fmt: skip


def _workflows(case: Case, cast: Cast) -> Mapping[str, Workflow]:
    if case.hooks:
        return {"desk": desk(cast).workflow}
    return {"parlor": parlor(cast).workflow} if case.sessions else make_workflows(cast)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Turn off garbage collection, which is not deterministic, and the logs of intended faults."""
    log = logging.getLogger("heliograph")
    level, was_enabled = log.level, gc.isenabled()
    log.setLevel(logging.CRITICAL + 1)
    gc.disable()
    try:
        yield
    finally:
        log.setLevel(level)
        if was_enabled:
            gc.enable()


async def _play(case: Case, stage: Stage, oracles: Oracles, workflows: Mapping[str, Workflow]) -> bool:
    """Run until all work is done, a rule is broken, or the time is up. Return whether all work is done."""
    loop, plan = stage.loop, stage.plan
    # far from the database one worker has all the work, of one application: its calls meet, and are sent together
    is_far = plan.draw("distance") < 0.2
    stage.distance = 60.0 if is_far else 1.0
    keeper = loop.open_process("keeper")
    for slot in range(1 if is_far else case.size.workers):
        loop.spawn(keeper, f"keeper of w{slot}", _keep(stage, f"w{slot}", workflows))
    visits = _surround(stage, maintenance=case.maintenance)
    if not (case.hooks or case.sessions) and not is_far and plan.draw("forks") < _FORKS_SHARE:
        process = loop.open_process("forks")
        world = SimWorld(stage, process, "forks", is_mortal=False)
        visits.append(world.spawn("forks", fork_runs(world, PROJECT, workflows, oracles)))
    for n in range(case.size.runs + 2 if is_far else 1 + plan.index("runs", case.size.runs)):
        process = loop.open_process(f"c{n}")
        world = SimWorld(stage, process, f"c{n}", is_mortal=False)
        pick = plan.fixed("application") if is_far else plan.draw("application")
        workflow = workflows[sorted(workflows)[int(pick * len(workflows))]]
        client = converse if case.sessions else visit
        visits.append(world.spawn(f"c{n}", client(world, Ledger(world, PROJECT), workflow, case.size.messages)))
    patience = SETTLE_SECONDS * (4 if is_far else 1)
    while loop.time() < HORIZON_SECONDS + patience:
        await asyncio.sleep(0.5)
        oracles.check_overdue(stage.micros_of_date)
        if oracles.violations:
            return False
        if all(v.done() for v in visits) and is_work_done(stage, oracles):
            return True
    oracles.blame("stuck", _unfinished(oracles))
    return False


def _surround(stage: Stage, *, maintenance: bool) -> list[asyncio.Task[None]]:
    """Start everything but clients and workers. Return the tasks that end by themselves."""

    def enter(name: str, visitor: Visit) -> asyncio.Task[None]:
        world = SimWorld(stage, stage.loop.open_process(name), name, is_mortal=False)
        return world.spawn(name, visitor(world, Ledger(world, PROJECT)))

    plan = stage.plan
    stage.sends_commands = plan.draw("wire") < 0.4
    enter("people", answer_questions)
    enter("tools", lambda world, ledger: serve_tools(world, ledger, takes=not stage.sends_commands))
    if maintenance:
        enter("janitor", lambda world, _ledger: prune_old_turns(world, PROJECT))
    ending = [enter("admin", lambda world, _ledger: set_limits(world, PROJECT))]
    everybody: list[tuple[str, float, Visit]] = [
        ("prophet", 0.5, answer_ahead), ("boss", 0.6, stop_turns_and_runs),
        ("clerk", 0.8 if maintenance else 0.0, lambda world, _ledger: use_boxes(world, PROJECT)),
        ("stranger", 0.9 if maintenance else 0.45, lambda world, _ledger: err(world, PROJECT, with_boxes=maintenance)),
        ("caller", 0.4, lambda world, _ledger: call_guarded(world, PROJECT)),
    ]  # fmt: skip
    return ending + [enter(name, visitor) for name, share, visitor in everybody if plan.draw(name) < share]


def is_work_done(stage: Stage, oracles: Oracles, project: str = PROJECT) -> bool:
    """Whether all runs and turns have ended and the outbox is empty."""
    books = oracles.books
    if any(status != "ended" for status in books.runs.values()) or any(True for _ in books.open_turns()):
        return False
    return all(row["published_at"] is not None for row in stage.backend.dump(project)["outbox"])


def _unfinished(oracles: Oracles) -> str:
    turns = [t.turn_id for t in oracles.books.turns.values() if t.ended_by is None]
    runs = [run_id for run_id, status in oracles.books.runs.items() if status != "ended"]
    return f"open turns {turns}, open runs {runs}"


async def _keep(stage: Stage, slot: str, workflows: Mapping[str, Workflow]) -> None:
    """Run a worker in this slot; when it ends, start another under a new name."""
    plan, generation = stage.plan, 0
    while True:
        process = stage.loop.open_process(f"{slot}.{generation}")
        world = SimWorld(stage, process, slot, is_mortal=True)
        services = ProjectServices(world, Ledger(world, PROJECT), workflows, _POOLS.get(slot, (COURT, DEFAULT_POOL)),
                                   sends_commands=stage.sends_commands)  # fmt: skip
        agent_loop = ModelAgentLoop(make_harness(world))
        worker = Worker([services], process.name, agent_loop, concurrency=1 + plan.index(f"{slot}/concurrency", 6) * (4 if stage.distance > 1.0 else 1),
                        lease_seconds=stage.lease_seconds)  # fmt: skip
        worker.watchdog.interval_seconds = SWEEP_SECONDS
        world.spawn(process.name, worker.run())
        world.spawn(f"{process.name} retirement", _retire(stage, world, worker))
        _serve_beside(stage, world, services, workflows)
        await process.ended
        generation += 1
        await asyncio.sleep(plan.between(f"{slot}/restart", 0.3, 4.0))


def _serve_beside(stage: Stage, world: SimWorld, services: ProjectServices, workflows: Mapping[str, Workflow]) -> None:
    """Let the process of some workers start runs and report results, too: these calls carry claims (decision 0189)."""
    plan, site = stage.plan, f"{world.slot}/beside"
    if plan.draw(site) < _BESIDE_SHARE and not stage.sends_commands:
        world.spawn(f"{world.slot} tools", serve_tools(world, services.ledger, takes=True))
    if plan.draw(site) < _BESIDE_SHARE:
        workflow = workflows[sorted(workflows)[int(plan.draw(f"{site}/application") * len(workflows))]]
        world.spawn(f"{world.slot} client", visit(world, services.ledger, workflow, 1))


async def _retire(stage: Stage, world: SimWorld, worker: Worker) -> None:
    """Replace some workers as a deployment does: stop, release the running turns, exit."""
    site = f"{world.slot}/retirement"
    await asyncio.sleep(stage.plan.between(site, 2.0, 12.0))
    if stage.fault(world.process.name, site, ("retire",)) is None:
        return
    worker.stop()
    await asyncio.sleep(stage.plan.between(site, 0.0, 1.0))
    await worker.release_turns()
    await world.crash()
