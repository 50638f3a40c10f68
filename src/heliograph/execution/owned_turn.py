"""One turn in a worker's hands: what its parts, from the agent's context to its suspension, work with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from heliograph.definitions.agent import AgentSpec
from heliograph.definitions.tool import Tool
from heliograph.execution.cancel_flag import CancelFlag
from heliograph.execution.project_services import ProjectServices
from heliograph.execution.signal_buffer import SignalBuffer
from heliograph.reactive.workflow import Workflow
from heliograph.records import Card, Claimed, Wait
from heliograph.turn.taint import Taint
from heliograph.types import JsonObject


@dataclass(frozen=True, slots=True)
class Resources:
    """The tools and cards of a turn, read once for each claim before it acts.

    tools: of a model's toolsets, by their place among the agent's `tools`. tools_error: why they could not be listed; it is
    raised when the turn acts, which may defer the turn. cards: those of the context box. inherited: those of the output
    box that the turn did not write itself, where somebody replaced that box. result_fields: the fields that a card of the context box adds.
    """

    tools: Mapping[int, Sequence[Tool]] = field(default_factory=dict)
    tools_error: Exception | None = None
    cards: Sequence[Card] = ()
    inherited: Sequence[Card] = ()
    result_fields: Sequence[JsonObject] = ()


@dataclass(frozen=True, slots=True)
class OwnedTurn:
    """A claimed turn, the agent that it runs and the application of that, its voice, what the worker works with,
    whether the turn is to end, and the untrusted content that it has read.

    not_made: the calls that were recorded as not made since `claimed.waits` was read; the kernel has no intent of them, so
    a run of the agent that did not find them here would record them again.
    carried: the steps whose calls this owner has carried out: what was refused of an earlier one was told to the model.
    """

    claimed: Claimed
    spec: AgentSpec
    workflow: Workflow
    signals: SignalBuffer
    services: ProjectServices
    cancel_flag: CancelFlag
    taint: Taint
    not_made: list[Wait] = field(default_factory=list)
    executed_steps: set[int] = field(default_factory=set)
    resources: Resources = field(default_factory=Resources)

    @property
    def waits(self) -> Sequence[Wait]:
        return (*self.claimed.waits, *self.not_made)
