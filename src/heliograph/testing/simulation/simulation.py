"""A simulated world for the applications of users: virtual time, the kernel in memory, workers that may die, and the test outside."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from datetime import datetime
from typing import Any, cast

from heliograph.agent_loop.model_agent_loop import ModelAgentLoop
from heliograph.app import Heliograph
from heliograph.config import Settings
from heliograph.control.pool_names import DEFAULT_POOL
from heliograph.definitions.agent import AgentSpec
from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput
from heliograph.execution.project_services import ProjectServices
from heliograph.ledger.client import Ledger
from heliograph.ledger.pool import Database
from heliograph.ports import Harness
from heliograph.reactive.workflow import Workflow
from heliograph.run_follower import RunFollower
from heliograph.runtime import Runtime
from heliograph.testing.kernel.in_memory import InMemoryKernel
from heliograph.testing.served_application import ServedApplication
from heliograph.testing.simulation.interrupted_model import InterruptedModel, check_simulated
from heliograph.testing.simulation.no_network import SimulatedToolbox
from heliograph.testing.simulation.patience import PatientStage
from heliograph.testing.simulation.reader import SimulatedReader
from heliograph.testing.simulation.words_memory import WordsMemory
from heliograph.testing.simulation.world import OutsideWorld, WorkerWorld
from heliograph.testing.stub_server import NotStubbed
from heliograph.testing.stubs import Models, Servers, StubbedModels, Tools, with_stubs
from heliograph.tools.mcp import MCPServer
from heliograph.type_variables import AppState
from heliograph.worker.claim_loop import Worker
from heliograph.world.real import RealWorld

PROJECT = "simulated"
SWEEP_SECONDS = 1.0
LEASE_SECONDS = 30.0


class Simulation:
    """The world of one simulated test. It is the first argument of the test.

    Time is virtual: it passes when nothing else can happen. seed: of the schedule and the faults; 0 without any.
    """

    def __init__(self, stage: PatientStage, *, workers: int, dies: bool):
        self.seed = stage.plan.seed
        self.effects: Counter[str] = Counter()
        self.workflows: dict[str, Workflow] = {}
        self._stage = stage
        self._workers = workers
        self._dies = dies
        self._keys: set[tuple[str, str]] = set()
        self._keeper = stage.loop.open_process("keeper")
        self._outside = OutsideWorld(stage, stage.loop.open_process("outside"))
        self._runtime = _SimulatedRuntime(self._outside, cast(InMemoryKernel, stage.backend))

    def serve(
        self, app: Heliograph[AppState, Any], *, models: Models = None, tools: Tools | None = None, servers: Servers | None = None
    ) -> ServedApplication[AppState]:  # fmt: skip
        """Start the workers of an application, which run until the end of the test. The others are stubs, as of `heliograph.testing.serve`.

        Raises InvalidInput for a model that a simulation cannot run (`not_simulated`) and an MCP server without a stub (`not_stubbed`),
        SetupError for a model without a stub.
        """
        if app.name in self.workflows:
            raise InvalidInput(f"application {app.name} is served already; serve it once", code="duplicate_entry")
        served = with_stubs(app, tools, servers)
        served._memory = served._memory or WordsMemory()
        harness_of = StubbedModels(models)
        for spec in served.workflow.agents.values():
            _check_agent(spec, harness_of, dies=self._dies)
        self.workflows[app.name] = served.workflow
        for number in range(self._workers):
            slot = f"{app.name}.{number}"
            self._stage.loop.spawn(self._keeper, f"keeper of {slot}", self._keep(slot, served.workflow, harness_of))
        return ServedApplication(served, self._runtime)

    async def sleep(self, seconds: float) -> None:
        """Let virtual time pass."""
        await self._outside.sleep(seconds)

    def now(self) -> datetime:
        """The virtual time."""
        return self._outside.now()

    def effect(self, name: str, *, key: str | None = None) -> None:
        """Record that something happened outside: a stub calls this where the real tool would pay, send or write.

        key: the idempotency key by which the real receiver recognizes a repeated call; with the same name and key, it counts once.
        """
        if key is not None and (name, key) in self._keys:
            return
        self._keys |= set() if key is None else {(name, key)}
        self.effects[name] += 1

    def spawn(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something beside the test, in the world outside, where no process dies."""
        return self._outside.spawn(name, work)

    def open_work(self) -> list[str]:
        """Describe the turns that have not ended, for messages."""
        tables = self._stage.backend.dump(PROJECT)
        heads = {head["active_agent_turn_id"]: head for head in tables["agent_state_head"]}
        found = []
        for turn in tables["agent_turns"]:
            if turn["state"] == "done":
                continue
            waits = [f"{wait['kind']} {wait['tool']}" for wait in tables["turn_waiting_tools"]
                     if wait["agent_turn_id"] == turn["agent_turn_id"] and wait["state"] == "open"]  # fmt: skip
            status = heads[turn["agent_turn_id"]]["status"] if turn["agent_turn_id"] in heads else turn["state"]
            waiting = f", waits for {', '.join(waits)}" if waits else ""
            found.append(f"{turn['agent_id']} is {status}{waiting}")
        return found

    async def _keep(self, slot: str, workflow: Workflow, harness_of: StubbedModels) -> None:
        """Run a worker; when it dies, start another under a new name."""
        stage, generation = self._stage, 0
        while True:
            process = stage.loop.open_process(f"{slot}.{generation}")
            world = WorkerWorld(stage, process, slot)
            pools = tuple(dict.fromkeys((DEFAULT_POOL, *workflow.pools)))
            services = ProjectServices(
                world, Ledger(world, PROJECT), {workflow.name: workflow}, pools, toolbox=SimulatedToolbox()
            )
            agent_loop = ModelAgentLoop(lambda model: InterruptedModel(harness_of(model)))
            worker = Worker([services], process.name, agent_loop, lease_seconds=stage.lease_seconds)
            worker.watchdog.interval_seconds = SWEEP_SECONDS
            world.spawn(process.name, worker.run())
            await process.ended
            generation += 1
            await self._outside.sleep(1.0)


class _SimulatedRuntime(Runtime):
    """The runtime of the test outside: production's own, on the kernel in memory."""

    def __init__(self, world: OutsideWorld, kernel: InMemoryKernel):
        super().__init__(Settings(project=PROJECT), cast(Database, None), cast(RealWorld, world))
        self.reader = SimulatedReader(kernel, PROJECT)
        self._follower = RunFollower(world, self.reader, PROJECT, self._local_runs)


def _check_agent(spec: AgentSpec, harness_of: StubbedModels, *, dies: bool) -> None:
    connecting = (
        each for each in spec.tools if isinstance(each, MCPServer) and type(each).open_tools is MCPServer.open_tools
    )
    if server := next(connecting, None):
        raise NotStubbed(f"agent {spec.name} has the MCP server {safe_repr(server.label)}, which a simulation cannot reach: pass "
                         f"servers={{{server.label!r}: StubServer(...)}}")  # fmt: skip
    if spec.prompt is None:
        return
    for model in spec.models:
        harness: Harness = harness_of(model)
        check_simulated(spec.name, harness, dies=dies)
