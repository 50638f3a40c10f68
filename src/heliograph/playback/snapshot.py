"""The situation of a run at one position, for reading: state, agents, texts, calls, waits and what has not begun.

A snapshot does not change when its player moves on. It holds positions, and reads texts and values from the log when they are used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any, overload

from msgspec import Struct

from heliograph.playback.fold import OUTCOMES, PHASES, RUN_STATUSES, Fold
from heliograph.playback.folded_parts import AgentFold, DoneCalls
from heliograph.playback.log import SignalLog
from heliograph.playback.streams import StreamedTexts
from heliograph.signals.model import Signal, to_wire
from heliograph.signals.state_change import changed_value
from heliograph.types import Json, JsonObject

CALLS_IN_JSON = 20  # the newest ended calls of an agent


class Usage(Struct, frozen=True):
    """What model calls have used, as far as they have ended. model_calls: also those that have not."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    model_calls: int = 0


class CallSnapshot(Struct, frozen=True):
    """A call of a tool, a step, a timer or a person (`tool`), or a delegation to an agent (`delegation`).

    id: the id within its turn. signal: the id of the signal that started it; None if it was pruned. status: `open`, or the status of its
    result. input: the arguments, or the task. output: the result, or the error.
    """

    agent: str
    kind: str
    id: str
    name: str
    status: str
    signal: str | None
    input: Json = None
    output: Json = None


class PendingReaction(Struct, frozen=True):
    """An agent that was activated, and has not begun its turn. cause: the signal that woke it. activation: `agent:activated`."""

    agent: str
    cause: str | None
    activation: str


class TurnSnapshot(Struct, frozen=True):
    """A turn that has begun and not ended. round: of the lifecycle, from 1. activation: the id of its `agent:activated`."""

    activation: str
    phase: str
    round: int


class _Turn(Struct, frozen=True):
    seq: int
    agent: str
    has_begun: bool
    phase: int
    rounds: int
    calls: tuple[int, ...]


class DoneCallList(Sequence[CallSnapshot]):
    """The ended calls of an agent in the order of their ends, read from the log one by one."""

    def __init__(self, view: _View, agent: str, count: int):
        self._view = view
        self._agent = agent
        self._count = count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> CallSnapshot: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[CallSnapshot]: ...
    def __getitem__(self, index: int | slice) -> CallSnapshot | Sequence[CallSnapshot]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(self._count))]
        number = range(self._count)[index]
        return self._view.call(self._agent, *self._view.done.pair(self._agent, number))

    def __iter__(self) -> Iterator[CallSnapshot]:
        return (self[number] for number in range(self._count))


class AgentSnapshot:
    """One agent of a run at a position.

    status: `idle`, `queued`, `running`, or the outcome of its last turn. turns_ended, turns_failed, skipped: how many so far.
    turns: those that have begun. usage: of all its model calls.
    """

    def __init__(self, view: _View, agent: AgentFold, turns: Sequence[_Turn]):
        self.name = agent.name
        self.turns_ended = agent.ended
        self.turns_failed = agent.failed
        self.skipped = agent.skipped
        self.usage = Usage(agent.input_tokens, agent.output_tokens, round(agent.cost, 9), agent.model_calls)
        self.calls_done = DoneCallList(view, agent.name, agent.calls_done)
        self.newest_signal = view.log.id_of(agent.seq) or ""
        self._view = view
        self._turns = turns
        self._outcome = OUTCOMES[agent.outcome]
        self._progress = agent.progress
        self._texts = (agent.text.start, agent.text.length), (agent.thinking.start, agent.thinking.length)

    @property
    def status(self) -> str:
        if any(turn.has_begun for turn in self._turns):
            return "running"
        return "queued" if self._turns else self._outcome or "idle"

    @property
    def turns(self) -> list[TurnSnapshot]:
        return [TurnSnapshot(self._view.log.id_of(each.seq) or "", PHASES[each.phase], each.rounds)
                for each in self._turns if each.has_begun]  # fmt: skip

    @property
    def phase(self) -> str | None:
        """The phase of the newest turn that has begun; None if there is none."""
        begun = self.turns
        return begun[-1].phase if begun else None

    @cached_property
    def text(self) -> str:
        """The text that the newest model call with a text has streamed so far."""
        return self._view.text(*self._texts[0])

    @cached_property
    def thinking(self) -> str:
        """The thinking that the newest model call with thinking has streamed so far."""
        return self._view.text(*self._texts[1])

    @property
    def has_text(self) -> bool:
        """Whether it has streamed a text or thinking."""
        return any(length for _, length in self._texts)

    @property
    def progress(self) -> tuple[float, str] | None:
        """The fraction and message of the newest `agent:progress`; None if there is none."""
        payload = self._view.log.entry(self._progress).payload if self._progress else None
        fraction = payload.get("fraction") if isinstance(payload, dict) else None
        if not isinstance(payload, dict) or not isinstance(fraction, int | float):
            return None
        message = payload.get("message")
        return float(fraction), message if isinstance(message, str) else ""

    @property
    def calls_open(self) -> list[CallSnapshot]:
        """The calls without a result, in the order of their starts."""
        return [self._view.call(self.name, call, 0) for turn in self._turns for call in turn.calls]

    @property
    def pending_reactions(self) -> list[PendingReaction]:
        log = self._view.log
        return [PendingReaction(self.name, log.id_of(log.entry(turn.seq).parent), log.id_of(turn.seq) or "")
                for turn in self._turns if not turn.has_begun]  # fmt: skip

    def as_json(self) -> JsonObject:
        """Return the agent as JSON. Of its ended calls, it has the number and the newest ones."""
        progress = self.progress
        return {
            "status": self.status, "phase": self.phase, "turns_ended": self.turns_ended, "turns_failed": self.turns_failed,
            "skipped": self.skipped, "turns": _plain(self.turns), "text": self.text, "thinking": self.thinking,
            "progress": None if progress is None else {"fraction": progress[0], "message": progress[1]},
            "usage": _fields(self.usage), "calls_open": _plain(self.calls_open), "calls_done_count": len(self.calls_done),
            "calls_done": _plain(self.calls_done[-CALLS_IN_JSON:]), "pending_reactions": _plain(self.pending_reactions),
            "newest_signal": self.newest_signal,
        }  # fmt: skip


class Snapshot:
    """The situation of a run after the signal at position `seq`.

    seq: one less than the first position for the situation before all signals. status: `new`, `running`, `terminating` or `ended`.
    """

    def __init__(self, view: _View, fold: Fold):
        self.seq = fold.seq
        self.run_id = view.log.run_id
        self.status = RUN_STATUSES[fold.status]
        turns: dict[str, list[_Turn]] = {}
        for turn in fold.turns.values():
            turns.setdefault(turn.agent, []).append(
                _Turn(turn.seq, turn.agent, turn.has_begun, turn.phase, turn.rounds, tuple(sorted(turn.calls.values())))
            )
        self.agents = {name: AgentSnapshot(view, agent, turns.get(name, ())) for name, agent in fold.agents.items()}
        self._view = view
        self._start = fold.start
        self._end = fold.end
        self._keys = dict(fold.keys)

    def __eq__(self, other: object) -> bool:
        return self.as_json() == other.as_json() if isinstance(other, Snapshot) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    @property
    def signal(self) -> Signal | None:
        """The signal at the position; None before all signals."""
        return self._view.log.signal(self.seq) if self.seq >= self._view.log.first_seq else None

    @property
    def at(self) -> datetime | None:
        """The time of the signal at the position."""
        signal = self.signal
        return None if signal is None else signal.timestamp

    @property
    def outcome(self) -> str | None:
        """The outcome of a run that has ended."""
        found = self._end_field("outcome")
        return found if self.status == "ended" else None

    @property
    def reason(self) -> str | None:
        """Why the run activates no more agents, if the log has a reason."""
        return self._end_field("reason")

    @cached_property
    def state(self) -> JsonObject:
        """The state document, as far as the log has it: without the keys that only pruned signals set."""
        log = self._view.log
        started = log.entry(self._start).payload if self._start else None
        found = started.get("state") if isinstance(started, dict) else None
        state: JsonObject = dict(found) if isinstance(found, dict) else {}
        for key, seq in self._keys.items():
            state[key] = self._value_at(state.get(key), seq)
        return state

    def _value_at(self, started: Json, seq: int) -> Json:
        """The value after the change at `seq`: its parts from the last whole value on. started: the value of the start."""
        log, changes = self._view.log, [seq]
        while (before := log.change_before(changes[-1])) is not None and before > self._start:
            changes.append(before)
        value = started
        for each in reversed(changes):
            payload = log.entry(each).payload
            if isinstance(payload, dict):
                value = changed_value(value, payload) if "value" in payload else payload.get("newValue")
            else:
                value = payload
        return value

    @property
    def usage(self) -> Usage:
        """What the model calls of all agents have used."""
        each = [agent.usage for agent in self.agents.values()]
        return Usage(sum(u.input_tokens for u in each), sum(u.output_tokens for u in each),
                     round(sum(u.cost_usd for u in each), 9), sum(u.model_calls for u in each))  # fmt: skip

    @property
    def waits(self) -> list[CallSnapshot]:
        """The open calls of all agents: what the turns wait for."""
        return [call for agent in self.agents.values() for call in agent.calls_open]

    @property
    def pending_reactions(self) -> list[PendingReaction]:
        """The agents that were activated and have not begun."""
        return [each for agent in self.agents.values() for each in agent.pending_reactions]

    def as_json(self) -> JsonObject:
        """Return the snapshot as JSON."""
        signal = self.signal
        return {
            "run_id": self.run_id, "seq": self.seq, "signal": None if signal is None else to_wire(signal), "status": self.status,
            "outcome": self.outcome, "reason": self.reason, "state": self.state, "usage": _fields(self.usage),
            "agents": {name: agent.as_json() for name, agent in self.agents.items()}, "waits": _plain(self.waits),
            "pending_reactions": _plain(self.pending_reactions),
        }  # fmt: skip

    def _end_field(self, key: str) -> str | None:
        payload = self._view.log.entry(self._end).payload if self._end else None
        found = payload.get(key) if isinstance(payload, dict) else None
        return found if isinstance(found, str) else None


class _View:
    """Where a snapshot reads texts and values."""

    def __init__(self, log: SignalLog, texts: StreamedTexts, done: DoneCalls):
        self.log = log
        self.done = done
        self._texts = texts

    def text(self, start: int, length: int) -> str:
        if start <= 0:
            return self._texts.content(-start) if start else ""
        return self._texts.read(start, length)

    def call(self, agent: str, call: int, result: int) -> CallSnapshot:
        """Read a call. call, result: their positions; 0 for one that the log does not have."""
        began = self.log.entry(call) if call else None
        ended = self.log.entry(result) if result else None
        sent = _object(began.payload) if began is not None else {}
        received = _object(ended.payload) if ended is not None else {}
        named = {**received, **sent}
        is_delegation = (began or ended or _NOTHING).name.startswith("delegation")
        output = received.get("output", received.get("result"))
        return CallSnapshot(
            agent, "delegation" if is_delegation else "tool", _text(named.get("id")),
            _text(named.get("target_agent" if is_delegation else "name")),
            "open" if ended is None else _text(received.get("status")) or ("failed" if "error" in received else "success"),
            self.log.id_of(call) if call else None, sent.get("task" if is_delegation else "input"),
            received.get("error") if output is None else output,
        )  # fmt: skip


class _Nothing(Struct, frozen=True):
    name: str = ""


_NOTHING: Any = _Nothing()


def take_snapshot(fold: Fold, texts: StreamedTexts, done: DoneCalls) -> Snapshot:
    """Return the snapshot of a fold. texts, done: those of the fold that follows the end of the same log."""
    return Snapshot(_View(fold.log, texts, done), fold)


def _object(payload: Any) -> dict[str, Any]:
    return payload if isinstance(payload, dict) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _fields(value: Struct) -> JsonObject:
    return {name: getattr(value, name) for name in value.__struct_fields__}


def _plain(values: Sequence[Struct]) -> list[Json]:
    return [_fields(value) for value in values]
