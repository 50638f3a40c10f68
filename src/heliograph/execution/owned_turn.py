"""The one object of an owned turn, which the parts of its execution and the agent loop share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from heliograph.definitions.agent import AgentSpec
from heliograph.execution.cancel_flag import CancelFlag
from heliograph.execution.signal_buffer import SignalBuffer
from heliograph.execution.state_events import StateEvents
from heliograph.execution.turn_inputs import LIVE, TurnInputs
from heliograph.execution.turn_ledger import TurnLedger
from heliograph.ports import TurnTrace
from heliograph.reactive.workflow import Workflow
from heliograph.records import Card, Claimed, EarlierTurn, Wait
from heliograph.telemetry.null_tracer import NULL_TURN
from heliograph.tools.bound_tool import BoundTool
from heliograph.turn.phases import Phase
from heliograph.turn.taint import Taint
from heliograph.types import JsonObject
from heliograph.world.seam import World


class Resources(Struct, frozen=True):
    """The tools and cards of a turn, read once for each claim before it acts.

    tools: the tools of each toolset, by its place in the agent's `tools`. tools_error: the error of listing them; the turn
    raises it when it acts, so that it may be deferred. cards: the cards of the context box. inherited: the cards by
    other turns in a replaced output box. result_fields: the fields that a card of the context box adds. earlier: the newest turns
    of the conversation that fit into the model's window, the newest first. has_all_earlier: no others came before them.
    """

    tools: Mapping[int, Sequence[BoundTool]] = field(default_factory=dict)
    tools_error: Exception | None = None
    cards: Sequence[Card] = ()
    inherited: Sequence[Card] = ()
    result_fields: Sequence[JsonObject] = ()
    earlier: Sequence[EarlierTurn] = ()
    has_all_earlier: bool = True


_NO_RESOURCES = Resources()


class OwnedTurn(Struct, frozen=True):
    """A turn that this worker owns.

    claimed: the turn as the kernel returned it. spec, workflow: its agent and its application. ledger: its kernel calls.
    signals: the signals that it has not committed yet. taint: the untrusted content that the current run of the agent has
    read. rejected: the calls that were rejected since the claim, for the next run of the agent, which must not record them
    again. ends_at: the end of its lifetime, in the world's monotonic time. executed_steps: the model calls whose tool calls this worker has executed.
    trace: its spans. inputs: reads what comes neither from the world nor from the ledger.
    """

    claimed: Claimed
    spec: AgentSpec
    workflow: Workflow
    project: str
    world: World
    ledger: TurnLedger
    signals: SignalBuffer
    taint: Taint
    state_events: StateEvents
    ends_at: float = math.inf
    cancel_flag: CancelFlag = field(default_factory=CancelFlag)
    rejected: list[Wait] = field(default_factory=list)
    executed_steps: set[int] = field(default_factory=set)
    resources: Resources = _NO_RESOURCES
    trace: TurnTrace = NULL_TURN
    inputs: TurnInputs = LIVE

    @property
    def waits(self) -> Sequence[Wait]:
        """The recorded calls of the turn."""
        return (*self.claimed.waits, *self.rejected)

    @property
    def termination(self) -> JsonObject:
        """A field of kernel calls, for an agent with a terminate hook: a graceful stop lets a worker run it, even without an owner."""
        return {"terminates": True} if Phase.TERMINATE in self.spec.hooks else {}

    @property
    def required_fields(self) -> Sequence[JsonObject]:
        """The required fields of the deliverable: from the message or the agent, and from the context box."""
        own = self.claimed.result_fields or self.spec.result_fields
        if not self.resources.result_fields:
            return own
        names = {each["name"] for each in own}
        return [*own, *(each for each in self.resources.result_fields if each["name"] not in names)]

    @property
    def boxes(self) -> list[tuple[str, Sequence[Card]]]:
        """The boxes whose cards a model reads, by their ids."""
        claimed, resources = self.claimed, self.resources
        found = [(claimed.context_box_id or "", resources.cards), (claimed.output_box_id, resources.inherited)]
        return [(box_id, cards) for box_id, cards in found if cards]
