"""What a worker works with, and how it knows that a turn is no longer its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from heliograph.egress.messenger import Messenger
from heliograph.ledger.client import Ledger
from heliograph.ports import Harness
from heliograph.reactive.workflow import Workflow
from heliograph.records import Claimed, Written
from heliograph.tools.toolbox import Toolbox
from heliograph.turn.interruptions import Interruption
from heliograph.worker.gates import RunGates
from heliograph.worker.state_events import StateEvents
from heliograph.world import BellKey, World, bell_keys

NATS = "nats"  # the wire, as projects know it


class TurnLost(Interruption):
    """Another epoch owns the turn, or the store cannot be asked. The drive ends here; whatever follows may be local
    only (L0-110). An interruption, because an agent that handles the errors of its steps must not handle this one."""


class GivenUp(TurnLost):
    """The store could not be asked for so long that this worker goes on no more with a turn that may be its own still."""


def owned(written: Written) -> Written:
    """`written`, unless the kernel called the caller stale. Raises TurnLost."""
    if written.outcome == "stale":
        raise lost(written.turn_id)
    return written


def lost(turn_id: str) -> TurnLost:
    return TurnLost(f"{turn_id} is no longer this worker's; another worker owns it or it has ended")


def gate_of(claimed: Claimed) -> dict[str, Any]:
    """The part of a kernel call's item that the owner gate looks at."""
    return {"agent_id": claimed.agent_id, "turn_id": claimed.turn_id, "epoch": claimed.epoch}


@dataclass(frozen=True, slots=True)
class Kit:
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
    gates: RunGates = field(default_factory=RunGates)
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
