"""Fold the signals of a run into the situation at one position: agents, turns, open calls, and the keys of the state.

The fold refers to the log instead of copying from it. A text is the position of its first delta and its length; a value of the state,
an open call and a turn are positions. So a situation is small, whatever the payloads are, and `checkpoints` can store the parts that
change. `snapshot` reads the text and values from the log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from heliograph.playback.folded_parts import AgentFold, DoneCalls, Stream, TurnFold
from heliograph.playback.log import FORKED, Entry, OtherEntry, SignalLog, TextDelta, ThinkingDelta
from heliograph.playback.streams import StreamedTexts
from heliograph.signals.state_change import changed_key

PHASES = ("init", "plan", "act", "reflect", "terminate")
RUN_STATUSES = ("new", "running", "terminating", "ended")
OUTCOMES = ("", "success", "partial", "failed", "timeout", "canceled")
_PHASE_AFTER = {"ready": 1, "plan_ready": 2, "action_complete": 3, "terminated": 4}
_NUMBER_MAX = 10**12  # of one usage: a larger one is no count of tokens
_OPEN_MODEL_CALLS_MAX = 64  # of one agent; a log with more is no log of ours, and must not make checkpoints large
_NO_CALL = 0  # the key of a stream whose model call is not known


class Fold:
    """The situation of a run at position `seq`.

    texts, done: receive streamed texts and ended calls; None for a fold over signals that another fold has reported.
    `touched_*` name the parts that changed since `forget_touched`.
    """

    def __init__(self, log: SignalLog, texts: StreamedTexts | None = None, done: DoneCalls | None = None):
        self.log = log
        self.seq = log.first_seq - 1
        self.status = 0
        self.start = 0  # the position of workflow:start
        self.end = 0  # the position of workflow:terminating or workflow:end
        self.agents: dict[str, AgentFold] = {}
        self.turns: dict[int, TurnFold] = {}
        self.calls: dict[int, int] = {}  # position of an open call -> its turn
        self.keys: dict[str, int] = {}  # key of the state -> position of its last change
        self._texts = texts
        self._done = done
        self.forget_touched()

    def forget_touched(self) -> None:
        self.floor = self.seq
        self.touched_agents: list[str] = []
        self.touched_turns: set[int] = set()
        self.touched_calls: set[int] = set()
        self.touched_keys: set[str] = set()

    def advance(self, until: int) -> None:
        """Fold the signals of the log up to a position."""
        for entries in self.log.batches(self.seq, until):
            self.apply(entries)

    def apply(self, entries: Sequence[Entry]) -> None:
        """Fold the next entries."""
        agents, texts, floor = self.agents, self._texts, self.floor
        text, thinking = TextDelta.kind, ThinkingDelta.kind
        seq = max(self.seq, self.log.first_seq - 1)  # the log was empty, and its front is pruned
        for entry in entries:
            seq += 1
            who, kind = entry.agent, entry.kind
            if who is None and (who := _agent_of(entry)) is None:
                if entry.name in _RUN:
                    _RUN[entry.name](self, seq)
                continue
            agent = agents.get(who)
            if agent is None:
                agent = agents[who] = AgentFold(who)
                self.touched_agents.append(who)
            elif agent.seq <= floor:
                self.touched_agents.append(who)
            agent.seq = seq
            # deltas are most of a log, so they have the shortest way
            if kind == text:
                stream = agent.texts.get(entry.parent) or self._stream(agent.texts, _key_of(agent, entry), seq)
                agent.text = stream
            elif kind == thinking:
                stream = agent.thoughts.get(entry.parent) or self._stream(agent.thoughts, _key_of(agent, entry), seq)
                agent.thinking = stream
            else:
                self._apply_other(agent, seq, entry)  # type: ignore[arg-type]  # a check of the class takes time
                continue
            content = entry.content  # type: ignore[union-attr]
            stream.length += len(content)
            if texts is not None:
                texts.extend(stream.start, content)
        self.seq = seq

    def _apply_other(self, agent: AgentFold, seq: int, entry: OtherEntry) -> None:
        name = entry.name
        if (handler := _HANDLERS.get(name)) is not None:
            handler(self, agent, seq, entry)
        elif (key := changed_key(name)) is not None:
            self.keys[key] = seq
            self.touched_keys.add(key)
        elif name in _RUN:
            _RUN[name](self, seq)
        elif self.turns:
            self._begin(entry.parent)

    def _begin(self, parent: Any) -> TurnFold | None:
        """Mark the turn that `parent` activated as begun; None if there is no such turn."""
        turn = self.turns.get(parent)
        if turn is not None and not turn.has_begun:
            turn.has_begun = True
            self.touched_turns.add(turn.seq)
            self.agents[turn.agent].turn = turn.seq
        return turn

    def _turn(self, agent: AgentFold, seq: int, parent: Any) -> TurnFold:
        """The turn to which a signal belongs: the one that its parent activated, or else the one that began last."""
        turn = self._begin(parent) or self.turns.get(agent.turn)
        if turn is None:  # the log begins in the middle of the turn
            known = isinstance(parent, int) and parent < self.log.first_seq
            turn = TurnFold(parent if known else seq, agent.name, has_begun=True)
            self.turns[turn.seq] = turn
            self.touched_turns.add(turn.seq)
            agent.turn = turn.seq
        return turn

    def _activated(self, agent: AgentFold, seq: int, _entry: OtherEntry) -> None:
        self.turns[seq] = TurnFold(seq, agent.name, has_begun=False)
        self.touched_turns.add(seq)

    def _skipped(self, agent: AgentFold, _seq: int, _entry: OtherEntry) -> None:
        agent.skipped += 1

    def _ended(self, agent: AgentFold, _seq: int, entry: OtherEntry) -> None:
        agent.ended += 1
        outcome = "success"
        if isinstance(entry.payload, dict):
            outcome = entry.payload.get("outcome", "failed" if entry.name == "agent:failed" else "success")
        agent.outcome = OUTCOMES.index(outcome) if outcome in OUTCOMES else OUTCOMES.index("failed")
        agent.failed += entry.name == "agent:failed"
        turn = self.turns.pop(entry.parent, None) or self.turns.pop(agent.turn, None)  # type: ignore[arg-type]
        if turn is not None:
            self.touched_turns.add(turn.seq)
            for call in turn.calls.values():
                self._close(call)
            for model_call in [key for key, its_turn in agent.models.items() if its_turn == turn.seq]:
                agent.end_model_call(model_call)
        agent.end_model_call(_NO_CALL)

    def _model_call(self, agent: AgentFold, seq: int, entry: OtherEntry) -> None:
        agent.model_calls += 1
        agent.models[seq] = self._turn(agent, seq, entry.parent).seq
        if len(agent.models) > _OPEN_MODEL_CALLS_MAX:
            agent.end_model_call(next(iter(agent.models)))

    def _model_reply(self, agent: AgentFold, _seq: int, entry: OtherEntry) -> None:
        agent.end_model_call(_key_of(agent, entry))
        usage = entry.payload.get("usage") if isinstance(entry.payload, dict) else None
        if isinstance(usage, dict):
            agent.input_tokens += _count(usage.get("inputTokens"))
            agent.output_tokens += _count(usage.get("outputTokens"))
            cost = usage.get("costUsd")
            if isinstance(cost, int | float) and 0 <= cost < _NUMBER_MAX:
                agent.cost += cost

    def _text_delta(self, agent: AgentFold, seq: int, entry: OtherEntry) -> None:
        agent.text = self._extended(agent.texts, agent, seq, entry)

    def _thinking_delta(self, agent: AgentFold, seq: int, entry: OtherEntry) -> None:
        agent.thinking = self._extended(agent.thoughts, agent, seq, entry)

    def _extended(self, streams: dict[Any, Stream], agent: AgentFold, seq: int, entry: OtherEntry) -> Stream:
        """The stream of a delta whose payload is not the usual one: without an offset, for example."""
        stream = self._stream(streams, _key_of(agent, entry), seq)
        content = entry.payload.get("content") if isinstance(entry.payload, dict) else None
        if isinstance(content, str):
            stream.length += len(content)
            if self._texts is not None:
                self._texts.extend(stream.start, content)
        return stream

    def _text_complete(self, agent: AgentFold, seq: int, entry: OtherEntry) -> None:
        agent.text = self._completed(agent.texts.pop(_key_of(agent, entry), None), seq, entry)

    def _thinking_complete(self, agent: AgentFold, seq: int, entry: OtherEntry) -> None:
        agent.thinking = self._completed(agent.thoughts.pop(_key_of(agent, entry), None), seq, entry)

    def _stream(self, streams: dict[Any, Stream], key: int, seq: int) -> Stream:
        """The open stream of a model call; begins one if there is none."""
        stream = streams.get(key)
        if stream is None:
            stream = streams[key] = Stream(seq)
            if self._texts is not None:
                self._texts.begin(seq)
        return stream

    def _completed(self, stream: Stream | None, seq: int, entry: OtherEntry) -> Stream:
        """The stream that a complete text ends. The complete text counts, also if deltas are missing."""
        content = entry.payload.get("content") if isinstance(entry.payload, dict) else None
        if not isinstance(content, str):
            return stream or Stream()
        if self._texts is not None and stream is not None:
            self._texts.complete(stream.start, seq, content)
        return Stream(-seq, len(content))

    def _call(self, agent: AgentFold, seq: int, entry: OtherEntry) -> None:
        turn = self._turn(agent, seq, entry.parent)
        identifier = call_id(entry.payload)
        if (earlier := turn.calls.get(identifier)) is not None:
            self._close(earlier)  # another attempt of the call
        turn.calls[identifier] = seq
        self.calls[seq] = turn.seq
        self.touched_calls.add(seq)

    def _result(self, agent: AgentFold, seq: int, entry: OtherEntry) -> None:
        if entry.name == "delegation_response" and _status_of(entry) in ("accepted", "in_progress"):
            self._begin(entry.parent)
            return
        turn = self._turn(agent, seq, entry.parent)
        call = turn.calls.pop(call_id(entry.payload), 0)
        if call:
            self._close(call)
        agent.calls_done += 1
        if self._done is not None:
            self._done.add(agent.name, call, seq)

    def _close(self, call: int) -> None:
        self.calls.pop(call, None)
        self.touched_calls.add(call)

    def _phase(self, agent: AgentFold, seq: int, entry: OtherEntry) -> None:
        turn = self._turn(agent, seq, entry.parent)
        self.touched_turns.add(turn.seq)
        turn.phase = _PHASE_AFTER[entry.name]

    def _reflected(self, agent: AgentFold, seq: int, entry: OtherEntry) -> None:
        turn = self._turn(agent, seq, entry.parent)
        self.touched_turns.add(turn.seq)
        payload = entry.payload if isinstance(entry.payload, dict) else {}
        turn.phase = PHASES.index("terminate")
        if payload.get("decision") == "iteration_needed":
            turn.phase = PHASES.index("act" if payload.get("resume_at") == "act" else "plan")
            turn.rounds += 1

    def _progress(self, agent: AgentFold, seq: int, entry: OtherEntry) -> None:
        agent.progress = seq
        self._begin(entry.parent)

    def _halted(self, _agent: AgentFold, _seq: int, _entry: OtherEntry) -> None:
        """A halt may reach a turn that has not begun."""

    def _started(self, seq: int) -> None:
        self.status, self.start = 1, seq
        self.touched_keys.update(self.keys)
        self.keys.clear()

    def _forked(self, seq: int) -> None:
        """A fork begins: turns in progress end here, and those that begin again are activated again."""
        payload = self.log.entry(seq).payload
        self.status = 1
        if isinstance(payload, dict) and isinstance(payload.get("state"), dict):
            self._started(seq)
        self.touched_turns.update(self.turns)
        self.touched_calls.update(self.calls)
        self.turns.clear()
        self.calls.clear()
        for agent in self.agents.values():
            if agent.models or agent.texts or agent.thoughts:
                self.touched_agents.append(agent.name)
                agent.models, agent.texts, agent.thoughts = {}, {}, {}

    def _terminating(self, seq: int) -> None:
        self.status, self.end = 2, seq

    def _finished(self, seq: int) -> None:
        self.status, self.end = 3, seq


_HANDLERS: dict[str, Callable[[Fold, AgentFold, int, OtherEntry], None]] = {
    "agent:activated": Fold._activated,
    "agent:skipped": Fold._skipped,
    "agent:completed": Fold._ended,
    "agent:failed": Fold._ended,
    "agent:progress": Fold._progress,
    "halt": Fold._halted,
    "harness:start": Fold._model_call,
    "harness:end": Fold._model_reply,
    "harness:error": Fold._model_reply,
    "text:delta": Fold._text_delta,
    "thinking:delta": Fold._thinking_delta,
    "text:complete": Fold._text_complete,
    "thinking:complete": Fold._thinking_complete,
    "tool:call": Fold._call,
    "tool:result": Fold._result,
    "delegation": Fold._call,
    "delegation_response": Fold._result,
    "ready": Fold._phase,
    "plan_ready": Fold._phase,
    "action_complete": Fold._phase,
    "terminated": Fold._phase,
    "reflection_complete": Fold._reflected,
}
_RUN: dict[str, Callable[[Fold, int], None]] = {
    "workflow:start": Fold._started,
    FORKED: Fold._forked,
    "workflow:terminating": Fold._terminating,
    "workflow:end": Fold._finished,
}


def _key_of(agent: AgentFold, entry: Entry) -> int:
    """The key of the streams of a signal: the model call that is its parent."""
    return entry.parent if isinstance(entry.parent, int) and entry.parent in agent.models else _NO_CALL


def _agent_of(entry: Entry) -> str | None:
    """The agent of a signal that the runtime emitted about an agent."""
    if not isinstance(entry, OtherEntry) or not entry.name.startswith("agent:") or not isinstance(entry.payload, dict):
        return None
    agent = entry.payload.get("agent")
    return agent if isinstance(agent, str) else None


def call_id(payload: Any) -> str:
    """Return the id of a call or of a result, from its payload; empty if it has none."""
    found = payload.get("id") if isinstance(payload, dict) else None
    return found if isinstance(found, str) else ""


def _status_of(entry: OtherEntry) -> object:
    return entry.payload.get("status") if isinstance(entry.payload, dict) else None


def _count(value: object) -> int:
    return value if type(value) is int and 0 <= value < _NUMBER_MAX else 0
