"""The one object of a project in a worker: its ledger, its applications and its connections to the outside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from heliograph.control.pool_names import DEFAULT_POOL, queue_name
from heliograph.egress.messenger import Messenger
from heliograph.execution.handler_queues import HandlerQueues
from heliograph.execution.local_runs import LocalRuns
from heliograph.execution.run_serializer import RunSerializers
from heliograph.execution.state_events import StateEvents
from heliograph.execution.turn_inputs import LIVE, TurnInputs
from heliograph.ledger.client import Ledger
from heliograph.ports import Tracer
from heliograph.reactive.workflow import Workflow
from heliograph.telemetry.null_tracer import NULL_TRACER
from heliograph.tools.toolbox import Toolbox
from heliograph.world.seam import BellKey, World, bell_keys

if TYPE_CHECKING:
    from heliograph.telemetry.metrics_signals import TurnMetrics  # only for workers with metrics

POSTGRES, NATS = "postgres", "nats"  # the names of the wires in the settings of a project


@dataclass(frozen=True, slots=True)
class ProjectServices:
    """The services of one project in one worker.

    workflows: the served applications, by name.
    pools: the pools whose turns the worker claims.
    run_id: the only run whose turns the worker claims; None for all runs of the applications.
    sends_commands: the worker has the wire NATS and sends commands to tools over it. Other workers of a project
        with NATS leave the outbox to it. Without NATS, tools fetch their commands.
    prune_after_seconds: the worker deletes runs that ended longer ago; None keeps all runs.
    callbacks: sends the callbacks of the project; None leaves them to workers with the secrets to sign them.
    gateways: sends the calls that routes lead to gateways; None leaves them to workers with the secrets.
    metrics: counts the signals and phases of the turns; None for a worker without metrics.
    tracer: records the turns as spans.
    inputs: reads the inputs of the turns.
    local_runs: what the workers of this process do with runs, for callers that wait for these.
    """

    world: World
    ledger: Ledger
    workflows: Mapping[str, Workflow]
    pools: Sequence[str] = (DEFAULT_POOL,)
    run_id: str | None = None
    sends_commands: bool = False
    prune_after_seconds: float | None = None
    callbacks: Messenger | None = None
    gateways: Messenger | None = None
    metrics: TurnMetrics | None = None
    run_serializers: RunSerializers = field(default_factory=RunSerializers)
    toolbox: Toolbox = field(default_factory=Toolbox)
    state_events: StateEvents = field(default_factory=StateEvents)
    handler_queues: HandlerQueues = field(default_factory=HandlerQueues)
    tracer: Tracer = NULL_TRACER
    inputs: TurnInputs = LIVE
    local_runs: LocalRuns = field(default_factory=LocalRuns)

    @property
    def wires(self) -> list[str]:
        """The wires that this worker has."""
        return [POSTGRES, NATS] if self.sends_commands else [POSTGRES]

    @property
    def project(self) -> str:
        return self.ledger.project

    @property
    def targets(self) -> list[str]:
        return sorted(self.workflows)

    def bell_keys(self, *names: str) -> list[BellKey]:
        """The keys of this project's bells, for names like `work:newsroom`."""
        return bell_keys(self.project, names)

    def ring(self, *names: str) -> None:
        """Ring this project's bells, always after the commit that they announce."""
        project = self.ledger.project
        self.world.ring([BellKey(project, name) for name in names])

    @property
    def claims(self) -> list[dict[str, Any]]:
        """The turns that this worker may claim: in its pools, those of the agents in its own version of each application."""
        return [
            {"target": name, "pool": pool, "agents": sorted(workflow.agents), "run_id": self.run_id}
            for name, workflow in sorted(self.workflows.items())
            for pool in self.pools
        ]

    @property
    def queues(self) -> list[str]:
        """The queues of its applications and pools, as bells name them."""
        return [queue_name(name, pool) for name in self.targets for pool in self.pools]
