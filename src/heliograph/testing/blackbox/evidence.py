"""What was observed of a run, and the questions that checks ask about it."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from heliograph.testing.blackbox.scenarios import Scenario

Signal = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Evidence:
    """log: the signals in their order. envelopes: its control signals, if the system offers them. disturbed: the length of the log when
    the run was disturbed.

    effects: the names of the tools that appended to the file of effects.
    """

    scenario: Scenario
    log: list[Signal]
    envelopes: list[Signal]
    has_ended: bool
    disturbed: int
    effects: list[str]

    def named(self, pattern: str, agent: str | None = None) -> list[Signal]:
        """The signals with a name, or a pattern of names; agent: of this agent only."""
        found = [each for each in self.log if fnmatchcase(str(each.get("name")), pattern)]
        return [each for each in found if agent is None or agent_of(each) == agent]

    def ends(self, agent: str | None = None) -> list[Signal]:
        """The signals that end turns."""
        return [each for each in self.named("agent:*", agent) if each["name"] in ("agent:completed", "agent:failed")]

    def place(self, name: str, agent: str | None = None) -> int:
        """The place of the first signal with a name in the log; -1 without one."""
        return next(
            (n for n, each in enumerate(self.log) if each.get("name") == name and agent in (None, agent_of(each))), -1
        )

    def controls(self, kind: str, **fields: Any) -> list[dict[str, Any]]:
        """The payloads of the control signals of a type, in envelopes."""
        signals = [each["signal"] for each in self.envelopes if isinstance(each.get("signal"), dict)]
        payloads = [as_object(each.get("payload")) for each in signals if each.get("type") == kind]
        return [each for each in payloads if all(each.get(key) == value for key, value in fields.items())]


def as_object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def payload_of(signal: Signal) -> dict[str, Any]:
    return as_object(signal.get("payload"))


def agent_of(signal: Signal) -> str | None:
    """The agent that a signal is about, or that emitted it."""
    return payload_of(signal).get("agent") or as_object(signal.get("source")).get("agent")


def parent_of(signal: Signal) -> str | None:
    return as_object(signal.get("source")).get("parent")
