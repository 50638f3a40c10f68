"""An open turn that new code would not continue as it began: where it diverges, why, and what to do."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from heliograph.error_text import printable, safe_repr
from heliograph.types import JsonObject

Kind = Literal[
    "agent", "state", "phases", "call", "arguments", "result", "tool", "missing", "error", "deadline", "outside", "exit", "unreadable", "prompt",
]  # fmt: skip
_SIDE_MAX = 200

_KEEP = "keep the old behaviour for open turns, or let them end first"
NEXT_STEPS: Mapping[Kind, str] = {
    "agent": "keep the agent until its turns have ended, or stop them: helio turn stop TURN",
    "state": "give new fields of the state a default, and read old values of changed ones",
    "phases": "give the agent with other hooks another name, and keep the old one until its turns have ended",
    "call": f"{_KEEP}; give each call a call_id if their order varies",
    "arguments": f"the turn would receive the result of the recorded call: {_KEEP}",
    "result": "accept the recorded result in the new schema, too",
    "tool": "keep the old name of the tool until the turns that called it have ended",
    "missing": f"the work of this call would be lost: {_KEEP}",
    "error": f"the turn would fail: {_KEEP}",
    "deadline": "look for a loop that never ends; raise --timeout if the code is slow",
    "outside": "move the access into ctx.step: a check allows no effect, so it cannot see how this turn continues",
    "exit": "look for code that ends the process",
    "prompt": "nothing, if the recorded reply may stand: the turn continues with it",
    "unreadable": "helio db doctor shows which records are damaged",
}


@dataclass(frozen=True, slots=True)
class Call:
    """The place of a divergence. index: counts the calls of the turn from 1, in the order in which they were opened."""

    index: int
    call_id: str
    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class TurnDivergence:
    """A turn that would diverge. call: the recorded call at which it does; None if it does so before its calls.

    recorded, now: what was recorded, and what the new code does, without secrets.
    """

    kind: Kind
    run_id: str
    turn_id: str
    agent: str
    message: str
    call: Call | None = None
    recorded: Any = None
    now: Any = None

    @property
    def is_note(self) -> bool:
        """Whether the turn continues anyway."""
        return self.kind == "prompt"

    @property
    def next_step(self) -> str:
        return NEXT_STEPS[self.kind].replace("TURN", self.turn_id)

    def lines(self) -> Iterator[str]:
        """The divergence for people."""
        place = (
            ""
            if self.call is None
            else f", call {self.call.index} ({self.call.call_id}, {safe_repr(self.call.name, 80)})"
        )
        yield printable(f"{self.turn_id} of {self.agent} in run {self.run_id}{place}: {self.kind}: {self.message}")
        if self.recorded is not None or self.now is not None:
            yield f"  recorded: {printable(_short(self.recorded))}"
            yield f"  now:      {printable(_short(self.now))}"
        yield f"  next: {self.next_step}"

    def as_json(self) -> JsonObject:
        """The divergence for programs."""
        call = self.call and {
            "index": self.call.index,
            "call_id": self.call.call_id,
            "name": self.call.name,
            "kind": self.call.kind,
        }
        return {
            "run_id": self.run_id, "turn_id": self.turn_id, "agent": self.agent, "kind": self.kind, "message": self.message,
            "call": call, "recorded": self.recorded, "now": self.now, "next_step": self.next_step,
        }  # fmt: skip


def bounded(side: Any) -> Any:
    """A side as JSON, or the beginning of its text if that is long."""
    return side if len(json.dumps(side, ensure_ascii=False, default=str)) <= _SIDE_MAX else _short(side)


def _short(side: Any) -> str:
    text = json.dumps(side, ensure_ascii=False, default=str, sort_keys=True)
    return text if len(text) <= _SIDE_MAX else f"{text[: _SIDE_MAX - 1]}…"
