"""One turn in a worker's hands: what its parts, from the agent's context to its suspension, work with."""

from __future__ import annotations

from dataclasses import dataclass

from heliograph.reactive.agent import AgentSpec
from heliograph.reactive.workflow import Workflow
from heliograph.records import Claimed
from heliograph.worker.halt import Halt
from heliograph.worker.kit import Kit
from heliograph.worker.voice import Voice


@dataclass(frozen=True, slots=True)
class Held:
    """A claimed turn, the agent that it runs and the application of that, its voice, what the worker works with, and
    whether the turn is to end."""

    claimed: Claimed
    spec: AgentSpec
    workflow: Workflow
    voice: Voice
    kit: Kit
    halt: Halt
