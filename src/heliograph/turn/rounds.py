"""The rounds of an agent with hooks: where a turn is in its phases, and the records from which that is restored. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from heliograph.definitions.agent import AgentSpec
from heliograph.definitions.lifecycle import Lifecycle
from heliograph.records import Wait
from heliograph.turn.events import Deliver, PhaseEnded, Raised
from heliograph.turn.phases import Phase
from heliograph.types import Json, JsonObject

_END = re.compile(r"init|(?:plan|act|reflect)-[1-9][0-9]*")
_ONCE = (Phase.INIT, Phase.TERMINATE)


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """The decided end of a turn, while its terminate hook runs. status: of the signal `terminated`."""

    status: str
    deliver: Deliver
    limit: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class Rounds:
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


@dataclass(frozen=True, slots=True)
class PhaseResults:
    """The results that earlier phases leave to the later ones, beside their signals.

    memory: the working memory. emitted: the agent's own signals. tokens: the input and output tokens of its models.
    deferrals: those of the turn before the last phase ended. sources: the untrusted content that it has read.
    """

    memory: JsonObject = field(default_factory=dict)
    emitted: tuple[tuple[str, Json], ...] = ()
    tokens: tuple[int, int] = (0, 0)
    deferrals: int = 0
    sources: tuple[str, ...] = ()

    def record(self, value: JsonObject | None, later: PhaseResults) -> JsonObject:
        """The recorded result of a phase that returned `value` and left `later`."""
        dropped: list[Json] = [key for key in self.memory if key not in later.memory]
        emitted: list[Json] = [[name, payload] for name, payload in later.emitted[len(self.emitted) :]]
        return {
            "value": value, "memory": _changes(self.memory, later.memory), "dropped": dropped, "emitted": emitted,
            "tokens": [later.tokens[0] - self.tokens[0], later.tokens[1] - self.tokens[1]], "deferrals": later.deferrals,
        }  # fmt: skip

    def after(self, wait: Wait) -> PhaseResults:
        """The results after the phase of this record."""
        output = wait.content.get("output") if isinstance(wait.content, dict) else None
        sources = tuple(dict.fromkeys([*self.sources, *(wait.taint or ())]))
        if not isinstance(output, dict):  # a phase that failed leaves nothing
            return replace(self, sources=sources)
        kept = {key: value for key, value in self.memory.items() if key not in output["dropped"]}
        return PhaseResults(
            {**kept, **output["memory"]}, (*self.emitted, *((name, payload) for name, payload in output["emitted"])),
            (self.tokens[0] + output["tokens"][0], self.tokens[1] + output["tokens"][1]), output["deferrals"], sources,
        )  # fmt: skip


def phase_ends(waits: Sequence[Wait]) -> list[Wait]:
    """The recorded ends of phases, in their order."""
    found = [
        wait for wait in waits if wait.kind == "inline" and _END.fullmatch(wait.call_id) and wait.state == "resolved"
    ]
    return sorted(found, key=lambda wait: wait.resolved_position or 0)


def event_of(wait: Wait) -> PhaseEnded | Raised:
    """The event of a recorded end."""
    content = wait.content if isinstance(wait.content, dict) else {}
    if wait.status == "success":
        return PhaseEnded(content["output"]["value"])
    error = content["error"]
    return Raised(error["outcome"], error["code"], error["message"], error["recoverable"], error["scope"],
                  error.get("details") or {})  # fmt: skip


def _changes(before: Mapping[str, Json], after: Mapping[str, Json]) -> JsonObject:
    """Compared as JSON, because 0, 0.0 and False are equal in Python."""
    return {key: value for key, value in after.items() if key not in before or _text(before[key]) != _text(value)}


def _text(value: Json) -> bytes:
    return msgspec.json.encode(value, order="sorted")
