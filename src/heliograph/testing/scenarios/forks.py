"""People who fork runs at any of their signals and retry those with failed turns, by the client's own code."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, cast

from msgspec.structs import replace

from heliograph.config import Settings
from heliograph.errors import HeliographError
from heliograph.ledger.fork_reader import ForkReader, SharedPrefix
from heliograph.ledger.pool import Database
from heliograph.reactive.workflow import Workflow
from heliograph.run_fork import fold_prefix, fork_run, retry_run
from heliograph.runtime import Runtime
from heliograph.testing.oracles.kernel_calls import Oracles
from heliograph.testing.scenarios.clients import insist
from heliograph.testing.scenarios.workload import FIRST_STATE
from heliograph.testing.simulation.reader import SimulatedReader
from heliograph.testing.simulator.world import SimWorld
from heliograph.world.real import RealWorld

_FORKS_MAX = 3  # in a seed


async def fork_runs(world: SimWorld, project: str, workflows: Mapping[str, Workflow], oracles: Oracles) -> None:
    """Fork a few runs, and forks of them, at random signals; retry some that have ended."""
    plan, books = world.stage.plan, oracles.books
    runtime = _ForkingRuntime(world, project, workflows, oracles)
    made = 0
    while made < _FORKS_MAX and not world.stage.is_calm:
        await world.sleep(plan.between("fork", 0.5, 5.0))
        if not books.runs:
            continue
        run_id = list(books.runs)[plan.index("fork/run", len(books.runs))]
        made += 1
        with suppress(HeliographError):  # a run that is pruned, has ended there, or has no failed turn
            await _fork(world, runtime, workflows[books.targets[run_id]], run_id)


async def _fork(world: SimWorld, runtime: _ForkingRuntime, workflow: Workflow, run_id: str) -> None:
    plan, new = world.stage.plan, world.new_id("run")
    runtime.reader.misses = plan.draw("fork/inside") < 0.1
    row = await runtime.reader.run(run_id)
    if row.status == "ended" and plan.draw("fork/retry") < 0.6:
        await insist(world, lambda: retry_run(runtime, workflow, run_id, new))
        return
    seq = 1 + plan.index("fork/signal", row.signal_count)
    state = {**FIRST_STATE, "total": 2} if plan.draw("fork/state") < 0.2 else None
    await insist(world, lambda: fork_run(runtime, workflow, run_id, seq, state, new))


class _ForkingRuntime(Runtime):
    """The client's runtime, on the kernel of the simulator."""

    reader: _Reader

    def __init__(self, world: SimWorld, project: str, workflows: Mapping[str, Workflow], oracles: Oracles):
        super().__init__(Settings(project=project), cast(Database, None), cast(RealWorld, world))
        self.reader = _Reader(world, project, workflows, oracles)


class _Reader(SimulatedReader):
    def __init__(self, world: SimWorld, project: str, workflows: Mapping[str, Workflow], oracles: Oracles):
        super().__init__(world.stage.backend, project)
        self.misses = False  # the next fork is attempted before the end of its commit
        self._forks = _CheckedForkReader(self, _Reads(world), project, workflows, oracles)

    @property
    def forks(self) -> ForkReader:
        return self._forks


class _CheckedForkReader(ForkReader):
    """Compares what each fork reads from a checkpoint with the whole log."""

    def __init__(
        self, reader: _Reader, reads: _Reads, project: str, workflows: Mapping[str, Workflow], oracles: Oracles
    ):
        super().__init__(cast(Database, reads), project)
        self._whole = _WholeForkReader(cast(Database, reads), project)
        self._reader = reader
        self._workflows = workflows
        self._oracles = oracles

    async def shared_prefix(self, run_id: str, seq: int, names: Any) -> SharedPrefix | None:
        part = await super().shared_prefix(run_id, seq, names)
        if part is None:
            return None
        whole = await self._whole.shared_prefix(run_id, seq, None)
        assert whole is not None
        workflow = self._workflows[self._oracles.books.targets[run_id]]
        logs = [fold_prefix(workflow, run_id, each) for each in (part, whole)]
        self._oracles.forks.check_fold(run_id, part.seq, *logs)
        self._oracles.count(f"fork {'at the start of a log' if part.checkpoint is None else 'after a checkpoint'}")
        is_inside = self._reader.misses and part.seq > part.commit_seq
        return replace(part, seq=part.seq - 1) if is_inside else part


class _WholeForkReader(ForkReader):
    """Reads logs from their start."""

    async def _page(self, run_id: str, seq: int, names: Any, after: int | None) -> Any:
        return await super()._page(run_id, seq, names, after or 0)


class _Reads:
    """Reads of kernel functions. They are no part of the trace: the in-memory kernel has checkpoints at other positions."""

    def __init__(self, world: SimWorld):
        self._world = world

    async def call(self, function: str, *args: Any) -> Any:
        await self._world.sleep(0.001)
        return self._world.stage.backend.call(function, args)
