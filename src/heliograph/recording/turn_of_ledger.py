"""An ended turn as the ledger has it, for a replay without a recording."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from heliograph.reactive.workflow import Workflow
from heliograph.recording.policy import ReplayPolicy
from heliograph.recording.recording import Part, Recording
from heliograph.records import EarlierTurn, RunView


@dataclass(frozen=True, slots=True)
class TurnOfLedger:
    """The parts of an ended turn that a replay reads.

    view_before: returns the run before the signal at a position. conversations: the turns of each agent that answered
    messages.
    """

    recording: Recording
    part: Part
    workflow: Workflow
    policy: ReplayPolicy
    claimed_view: RunView
    view_before: Callable[[int], RunView]
    conversations: Mapping[str, Sequence[EarlierTurn]] = field(default_factory=dict)
