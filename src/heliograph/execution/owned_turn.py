"""The one object of an owned turn: its claim, its definitions, its signals, its cancel flag and its taint."""

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

    tools: the tools of each toolset, by its place in the agent's `tools`. tools_error: the error of listing them; the turn
    raises it when it acts, so that it may be deferred. cards: the cards of the context box. inherited: the cards by
    other turns in a replaced output box. result_fields: the fields that a card of the context box adds.
    """

    tools: Mapping[int, Sequence[Tool]] = field(default_factory=dict)
    tools_error: Exception | None = None
    cards: Sequence[Card] = ()
    inherited: Sequence[Card] = ()
    result_fields: Sequence[JsonObject] = ()


@dataclass(frozen=True, slots=True)
class OwnedTurn:
    """A turn that this worker owns.

    spec, workflow: its agent and its application. signals: the signals that it has not committed yet. taint: the untrusted
    content that it has read. not_made: the refused calls recorded since the claim; without them here, another run of the agent
    would record them again. executed_steps: the model calls whose tool calls this owner has executed.
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
