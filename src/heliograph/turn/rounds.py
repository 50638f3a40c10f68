"""The rounds of an agent with hooks: the position of a turn in its phases. Pure."""

from __future__ import annotations

from msgspec import Struct

from heliograph.definitions.agent import AgentSpec
from heliograph.definitions.lifecycle import Lifecycle
from heliograph.turn.events import Deliver
from heliograph.turn.phases import Phase
from heliograph.types import JsonObject

_ONCE = (Phase.INIT, Phase.TERMINATE)


class TurnEnd(Struct, frozen=True):
    """The decided end of a turn, while its terminate hook runs. status: of the signal `terminated`."""

    status: str
    deliver: Deliver
    limit: JsonObject | None = None


class Rounds(Struct, frozen=True):
    """The progress of an agent with hooks. hooks: the phases that have one. count: the current round, from 1.

    plan: the current plan. acted: the result of the last act phase. end: see TurnEnd.
    """

    hooks: frozenset[Phase]
    lifecycle: Lifecycle
    count: int = 1
    plan: JsonObject | None = None
    acted: JsonObject | None = None
    end: TurnEnd | None = None

    @classmethod
    def of(cls, spec: AgentSpec) -> Rounds | None:
        """Those of a new turn; None for an agent without hooks."""
        return cls(frozenset(Phase(hook) for hook in spec.hooks), spec.lifecycle) if spec.hooks else None

    def record_id(self, phase: Phase) -> str:
        """The call id of the end of a phase. The ids of the calls in that phase begin with it."""
        return str(phase) if phase in _ONCE else f"{phase}-{self.count}"
