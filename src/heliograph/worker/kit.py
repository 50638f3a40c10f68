"""What a worker works with, and how it knows that a turn is no longer its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from heliograph.ledger.client import Ledger
from heliograph.ports import Harness
from heliograph.reactive.workflow import Workflow
from heliograph.records import Written
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
    """The world, the ledger, the applications served by name, and the way to a model."""

    world: World
    ledger: Ledger
    workflows: Mapping[str, Workflow]
    harness_of: Callable[[Any], Harness]

    @property
    def targets(self) -> list[str]:
        return sorted(self.workflows)
