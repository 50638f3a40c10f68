"""Checkpoints of a fold: what changed since the one before, as bytes, so that a seek folds few signals.

A checkpoint stores the agents, turns, open calls and keys of the state that the signals since the last checkpoint touched. All its
numbers are positions and counts, because texts and values remain in the log. Once the changes since the last full checkpoint are as
large as it was, the next checkpoint is full. So all full ones together are at most as large as the changes, and a seek reads at most
twice the size of the situation that it restores.

The distance adapts. It is the shortest one at which a checkpoint takes one per cent of the signals that it follows, but at most
`DISTANCE_MAX`, because a seek folds that many signals. All checkpoints together take at most `LOG_SHARE_MAX` of the log: in a log
in which thousands of agents emit by turns, checkpoints are further apart, and a seek takes longer.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sized
from typing import Any

import msgspec

from heliograph.playback.fold import Fold, call_id
from heliograph.playback.folded_parts import AgentFold, Stream, TurnFold
from heliograph.playback.log import SignalLog

DISTANCE_MAX = 4096  # signals
LOG_SHARE_MAX = 0.02
_SHARE = 100  # a checkpoint takes at most one part in this many of the log
# Rough sizes of the parts of a checkpoint in bytes.
_AGENT, _TURN, _CALL, _KEY, _HEAD = 60, 25, 10, 25, 20


class Mark(msgspec.Struct, array_like=True):
    """One checkpoint. None marks what has gone: a turn that ended, a call that has its result, a key of an earlier start."""

    seq: int
    run: tuple[int, int, int]  # status, start, end
    agents: dict[str, list[Any]]
    turns: dict[int, tuple[str, bool, int, int] | None]  # agent, has begun, phase, rounds
    calls: dict[int, int | None]
    keys: dict[str, int | None]


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Mark)


class Checkpoints:
    """The checkpoints of one log."""

    def __init__(self, log: SignalLog):
        self._log = log
        self._seqs: list[int] = []
        self._marks: list[bytes] = []
        self._bases: list[int] = []  # of each checkpoint: the number of the last full one
        self._log_bytes = 0  # the size of the log at the last checkpoint
        self._base_bytes = self._changed_bytes = 0
        self._scale = 1.0  # how much larger the last checkpoint was than its rough size
        self.byte_count = 0  # the size of all checkpoints

    @property
    def count(self) -> int:
        return len(self._marks)

    def last_before(self, seq: int) -> int:
        """Return the position of the last checkpoint that is not after `seq`; 0 if there is none."""
        number = bisect_right(self._seqs, seq)
        return self._seqs[number - 1] if number else 0

    def offer(self, fold: Fold) -> None:
        """Add a checkpoint of this fold, if the last one is far enough away. Folds are offered in the order of the log."""
        distance = fold.seq - (self._seqs[-1] if self._seqs else self._log.first_seq - 1)
        if not distance:
            return
        size = self._scale * _rough_size(fold.touched_agents, fold.touched_turns, fold.touched_calls, fold.touched_keys)
        if distance < DISTANCE_MAX and size * _SHARE > self._log.byte_count - self._log_bytes:
            return
        room = LOG_SHARE_MAX * self._log.byte_count - self.byte_count
        full_size = self._scale * _rough_size(fold.agents, fold.turns, fold.calls, fold.keys)
        is_full = not self._marks or (self._changed_bytes >= self._base_bytes and full_size <= room)
        if (expected := full_size if is_full else size) > room:
            return
        raw = _ENCODER.encode(_full(fold) if is_full else _changes(fold))
        self._scale = max(1.0, self._scale * len(raw) / expected)
        if len(raw) > room:
            return
        if is_full:
            self._base_bytes, self._changed_bytes = len(raw), 0
        else:
            self._changed_bytes += len(raw)
        self._bases.append(len(self._marks) if is_full else self._bases[-1])
        self._seqs.append(fold.seq)
        self._marks.append(raw)
        self.byte_count += len(raw)
        self._log_bytes = self._log.byte_count
        fold.forget_touched()

    def restore(self, seq: int) -> Fold:
        """Return a fold at the last checkpoint that is not after `seq`; an empty one if there is none."""
        fold = Fold(self._log)
        last = bisect_right(self._seqs, seq) - 1
        if last < 0:
            return fold
        mark = _DECODER.decode(self._marks[self._bases[last]])
        for raw in self._marks[self._bases[last] + 1 : last + 1]:
            later = _DECODER.decode(raw)
            mark.agents |= later.agents
            mark.turns |= later.turns
            mark.calls |= later.calls
            mark.keys |= later.keys
            mark.seq, mark.run = later.seq, later.run
        _load(fold, mark)
        return fold


def _rough_size(agents: Sized, turns: Sized, calls: Sized, keys: Sized) -> int:
    return _HEAD + _AGENT * len(agents) + _TURN * len(turns) + _CALL * len(calls) + _KEY * len(keys)


def _full(fold: Fold) -> Mark:
    return _mark(fold, fold.agents, fold.turns, fold.calls, fold.keys)


def _changes(fold: Fold) -> Mark:
    return _mark(fold, fold.touched_agents, fold.touched_turns, fold.touched_calls, fold.touched_keys)


def _mark(fold: Fold, agents: Any, turns: Any, calls: Any, keys: Any) -> Mark:
    return Mark(
        fold.seq, (fold.status, fold.start, fold.end),
        {name: dump_agent(fold.agents[name]) for name in agents},
        {seq: None if (turn := fold.turns.get(seq)) is None else (turn.agent, turn.has_begun, turn.phase, turn.rounds)
         for seq in turns},
        {call: fold.calls.get(call) for call in calls},
        {key: fold.keys.get(key) for key in keys},
    )  # fmt: skip


def _load(fold: Fold, mark: Mark) -> None:
    fold.seq = mark.seq
    fold.status, fold.start, fold.end = mark.run
    fold.agents = {name: _load_agent(name, values) for name, values in mark.agents.items()}
    for seq, found in mark.turns.items():
        if found is not None:
            agent, has_begun, phase, rounds = found
            fold.turns[seq] = TurnFold(seq, agent, has_begun=has_begun, phase=phase, rounds=rounds)
    for call, turn in mark.calls.items():
        if turn is not None:
            fold.calls[call] = turn
            fold.turns[turn].calls[call_id(fold.log.entry(call).payload)] = call
    fold.keys = {key: seq for key, seq in mark.keys.items() if seq is not None}
    fold.forget_touched()


def dump_agent(agent: AgentFold) -> list[Any]:
    """Return the values of an agent's fold as a list."""
    return [
        agent.seq, agent.turn, agent.ended, agent.failed, agent.skipped, agent.outcome, agent.model_calls, agent.input_tokens,
        agent.output_tokens, agent.cost, agent.calls_done, agent.progress, agent.text.start, agent.text.length,
        agent.thinking.start, agent.thinking.length, agent.models,
        {key: (stream.start, stream.length) for key, stream in agent.texts.items()},
        {key: (stream.start, stream.length) for key, stream in agent.thoughts.items()},
    ]  # fmt: skip


def _load_agent(name: str, values: list[Any]) -> AgentFold:
    agent = AgentFold(name)
    (agent.seq, agent.turn, agent.ended, agent.failed, agent.skipped, agent.outcome, agent.model_calls, agent.input_tokens,
     agent.output_tokens, agent.cost, agent.calls_done, agent.progress, *ends, agent.models, texts, thoughts) = values  # fmt: skip
    agent.texts = {key: Stream(*each) for key, each in texts.items()}
    agent.thoughts = {key: Stream(*each) for key, each in thoughts.items()}
    agent.text = _stream(agent.texts, *ends[:2])
    agent.thinking = _stream(agent.thoughts, *ends[2:])
    return agent


def _stream(streams: dict[Any, Stream], start: int, length: int) -> Stream:
    """The open stream with this start, which later deltas extend; otherwise one that has ended."""
    return next((each for each in streams.values() if each.start == start), Stream(start, length))
