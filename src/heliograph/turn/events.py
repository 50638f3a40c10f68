"""What can happen to a running turn, and what it can want. Values only; see `machine.advance`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from heliograph.records import Outcome
from heliograph.signals.model import Draft
from heliograph.types import Json, JsonObject

# ---- events: the world tells the turn ----


@dataclass(frozen=True, slots=True)
class Hydrated:
    """The turn was claimed and everything it needs is at hand. `recoveries`: how often it lost its worker before."""

    recoveries: int
    may_run_again: bool
    is_run_over: bool


@dataclass(frozen=True, slots=True)
class Acted:
    """The agent's work is done and this is its output."""

    output: Json


@dataclass(frozen=True, slots=True)
class Raised:
    """The agent's work failed; `outcome` is `failed` or `timeout`."""

    outcome: Outcome
    code: str
    message: str
    is_recoverable: bool = False


Event: TypeAlias = Hydrated | Acted | Raised

# ---- effects: the turn wants something of the world ----


@dataclass(frozen=True, slots=True)
class Emit:
    """Put these into the log with the next commit of this turn."""

    drafts: tuple[Draft, ...]


@dataclass(frozen=True, slots=True)
class Act:
    """Run the agent's function or prompt; answer with Acted or Raised."""


@dataclass(frozen=True, slots=True)
class Deliver:
    """End the turn: deliverable, signals, reaction, in one commit."""

    outcome: Outcome
    content: JsonObject
    output: Json = None
    error: JsonObject | None = None


Effect: TypeAlias = Emit | Act | Deliver
