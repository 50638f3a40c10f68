"""The parts of a folded run: agents, turns, streams and ended calls. They refer to positions of the log."""

from __future__ import annotations

from array import array
from typing import Any


class Stream:
    """A text as it streams. start: the position of its first delta, or minus that of its complete text; 0 for none.

    length: in characters.
    """

    __slots__ = ("length", "start")

    def __init__(self, start: int = 0, length: int = 0):
        self.start = start
        self.length = length


class AgentFold:
    """One agent.

    seq: the position of its newest signal. turn: the turn that began last. models: the open model calls, with their turns.
    texts, thoughts: the open streams by their model call.
    """

    __slots__ = ("calls_done", "cost", "ended", "failed", "input_tokens", "model_calls", "models", "name", "outcome", "output_tokens",
                 "progress", "seq", "skipped", "text", "texts", "thinking", "thoughts", "turn")  # fmt: skip

    def __init__(self, name: str):
        self.name = name
        self.seq = 0
        self.turn = 0
        self.ended = self.failed = self.skipped = self.outcome = 0
        self.model_calls = self.input_tokens = self.output_tokens = self.calls_done = self.progress = 0
        self.cost = 0.0
        self.text = self.thinking = Stream()
        self.models: dict[int, int] = {}
        self.texts: dict[Any, Stream] = {}
        self.thoughts: dict[Any, Stream] = {}

    def end_model_call(self, call: Any) -> None:
        self.models.pop(call, None)
        self.texts.pop(call, None)
        self.thoughts.pop(call, None)


class TurnFold:
    """One turn that has not ended. seq: the position of the signal that activated the agent, or of the turn's first one that is known."""

    __slots__ = ("agent", "calls", "has_begun", "phase", "rounds", "seq")

    def __init__(self, seq: int, agent: str, *, has_begun: bool, phase: int = 0, rounds: int = 1):
        self.seq = seq
        self.agent = agent
        self.has_begun = has_begun
        self.phase = phase
        self.rounds = rounds
        self.calls: dict[str, int] = {}  # open ones: the position by the id


class DoneCalls:
    """The calls that ended, per agent and in the order of their ends: positions of call and result. The call is 0 if it is unknown."""

    def __init__(self) -> None:
        self._by_agent: dict[str, tuple[array[int], array[int]]] = {}

    def add(self, agent: str, call: int, result: int) -> None:
        calls, results = self._by_agent.setdefault(agent, (array("Q"), array("Q")))
        calls.append(call)
        results.append(result)

    def pair(self, agent: str, number: int) -> tuple[int, int]:
        calls, results = self._by_agent[agent]
        return calls[number], results[number]
