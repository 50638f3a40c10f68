"""What a worker works with, and how it knows that a turn is no longer its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from heliograph.ledger.client import Ledger
from heliograph.ports import Harness
from heliograph.reactive.workflow import Workflow
from heliograph.records import Written
from heliograph.worker.gates import RunGates
from heliograph.world import World


class TurnLost(Exception):
    """Another epoch owns the turn. The drive ends here; whatever follows may be local only (L0-110)."""


def owned(written: Written) -> Written:
    """`written`, unless the kernel called the caller stale. Raises TurnLost."""
    if written.outcome == "stale":
        raise TurnLost(f"{written.turn_id} is no longer this worker's; another worker owns it or it has ended")
    return written


@dataclass(frozen=True, slots=True)
class Kit:
    """The world, the ledger, the applications served by name, and the way to a model.

    run_id: the only run whose turns are claimed; None for all runs of the applications.
    """

    world: World
    ledger: Ledger
    workflows: Mapping[str, Workflow]
    harness_of: Callable[[Any], Harness]
    run_id: str | None = None
    gates: RunGates = field(default_factory=RunGates)

    @property
    def targets(self) -> list[str]:
        return sorted(self.workflows)

    @property
    def claims(self) -> list[dict[str, Any]]:
        """What this worker may claim: of each application only the agents that its version of it has."""
        return [
            {"target": name, "agents": sorted(workflow.agents), "run_id": self.run_id}
            for name, workflow in sorted(self.workflows.items())
        ]
