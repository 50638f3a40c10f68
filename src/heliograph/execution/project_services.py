"""What a worker works with, and how it knows that a turn is no longer its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from heliograph.egress.messenger import Messenger
from heliograph.execution.run_serializer import RunSerializers
from heliograph.execution.state_events import StateEvents
from heliograph.ledger.client import Ledger
from heliograph.ports import Harness
from heliograph.reactive.workflow import Workflow
from heliograph.tools.toolbox import Toolbox
from heliograph.world.seam import BellKey, World, bell_keys

NATS = "nats"  # the wire, as projects know it


@dataclass(frozen=True, slots=True)
class ProjectServices:
    """The world, one project's ledger, the applications served by name, and the way to a model.

    run_id: the only run whose turns are claimed; None for all runs of the applications.
    sends_commands: this worker has the wire NATS, which tells commands to tools (L0-51); without it tools come and take
        them, and in a project that has the wire the outbox is left to the workers that have it, too.
    prune_after_seconds: what ended longer ago is forgotten; None keeps all.
    callbacks: sends the callbacks of the project; None leaves them to workers that have the secrets to sign them.
    """

    world: World
    ledger: Ledger
    workflows: Mapping[str, Workflow]
    harness_of: Callable[[Any], Harness]
    run_id: str | None = None
    sends_commands: bool = False
    prune_after_seconds: float | None = None
    callbacks: Messenger | None = None
    run_serializers: RunSerializers = field(default_factory=RunSerializers)
    toolbox: Toolbox = field(default_factory=Toolbox)
    state_events: StateEvents = field(default_factory=StateEvents)

    @property
    def wires(self) -> list[str]:
        """The wires that this worker has, beside PostgreSQL's own."""
        return [NATS] if self.sends_commands else []

    @property
    def project(self) -> str:
        return self.ledger.project

    @property
    def targets(self) -> list[str]:
        return sorted(self.workflows)

    def bell_keys(self, *names: str) -> list[BellKey]:
        """The keys of this project's bells, for names such as `work:newsroom`."""
        return bell_keys(self.project, names)

    def ring(self, *names: str) -> None:
        """Ring this project's bells. Never before the commit that it announces."""
        self.world.ring(self.bell_keys(*names))

    @property
    def claims(self) -> list[dict[str, Any]]:
        """What this worker may claim: of each application only the agents that its version of it has."""
        return [
            {"target": name, "agents": sorted(workflow.agents), "run_id": self.run_id}
            for name, workflow in sorted(self.workflows.items())
        ]
