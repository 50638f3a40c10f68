"""What can happen to a running turn, and what it can want. Values only; see `machine.advance`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from heliograph.records import Outcome
from heliograph.signals.model import Draft
from heliograph.turn.calls import CallRequest, CallResult, Join
from heliograph.types import Json, JsonObject

# ---- events: the world tells the turn ----


@dataclass(frozen=True, slots=True)
class Hydrated:
    """The turn was claimed and everything it needs is at hand. `recoveries`: how often it lost its worker before.

    is_resumed: it has been at work before and was suspended or put off: it is in act, and has said so.
    answer: the result of a call with `after="terminate"`, which ends the turn. awaits_closing: another such call of the
    same step has no result yet, so the turn waits for it. problem: why its context box cannot be read.
    """

    recoveries: int
    may_run_again: bool
    is_run_over: bool
    is_resumed: bool = False
    answer: CallResult | None = None
    awaits_closing: bool = False
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Acted:
    """The agent's work is done and this is its output; is_partial: as far as a limit let it come, and which one."""

    output: Json
    is_partial: bool = False
    limit: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class Raised:
    """The agent's work failed; `outcome` is `failed` or `timeout`."""

    outcome: Outcome
    code: str
    message: str
    is_recoverable: bool = False


@dataclass(frozen=True, slots=True)
class Waiting:
    """The agent waits for calls; `calls` are those that are new. `join`: for all that are open, or for each (K15)."""

    calls: tuple[CallRequest, ...]
    join: Join


@dataclass(frozen=True, slots=True)
class Resolved:
    """No call is open any more: every result came before the turn could suspend. The agent continues.

    answer, awaits_closing: as of Hydrated.
    """

    answer: CallResult | None = None
    awaits_closing: bool = False


@dataclass(frozen=True, slots=True)
class Deferred:
    """The agent cannot go on now and wants to be run again later (L0-64). at_most: deferrals; None for the limit."""

    reason: str
    seconds: float
    at_most: int | None = None


@dataclass(frozen=True, slots=True)
class Stopped:
    """Somebody wants the turn to end, and its work has been cancelled."""

    reason: str


Event: TypeAlias = Hydrated | Acted | Raised | Waiting | Resolved | Deferred | Stopped

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


@dataclass(frozen=True, slots=True)
class Suspend:
    """Open these calls and give the turn back until there is a result; answer with Resolved if there is one already."""

    calls: tuple[CallRequest, ...]
    join: Join


@dataclass(frozen=True, slots=True)
class DeferTurn:
    """Give the turn back for a while."""

    reason: str
    seconds: float
    at_most: int | None


Effect: TypeAlias = Emit | Act | Deliver | Suspend | DeferTurn
