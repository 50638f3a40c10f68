"""The run as its turns saw it, folded from its log: state, joins and counters. The ledger has only the newest."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from heliograph.execution.packed_commit import as_jsonb
from heliograph.reactive.run_memory import ACTIVATIONS_BEFORE, CLOSED, OPEN, SESSION, STOPPED_BY, new_memory
from heliograph.reactive.shared_log import SharedLog
from heliograph.reactive.state_taint import mark_untrusted
from heliograph.reactive.workflow import Workflow
from heliograph.recording.recording import Recording
from heliograph.records import RunView
from heliograph.signals.model import LogEntry, Signal

_CLAIMS_MAX = 8  # how many moments of a claim are tried


class RunViews:
    """The run at positions of its log, which have to be read in their order."""

    def __init__(self, recording: Recording, workflow: Workflow, agents: Sequence[str], pending: Collection[str] = ()):
        """agents: with which the run began. pending: the ids of the signals to which the run reacted later."""
        self._recording = recording
        self._workflow = workflow
        self._agents = agents
        self._pending = pending
        self._log = SharedLog(workflow)
        self._at = 0  # how many signals are folded
        self.partial = 0  # how many turns have ended with a partial output, which the log does not have
        self._activations_before = 0
        self._activation_ids = {signal.id for signal in recording.signals if signal.name == "agent:activated"}

    def before(self, seq: int) -> RunView:
        """The run before the signal at a position."""
        signals = self._recording.signals
        while self._at < len(signals) and signals[self._at].seq < seq:
            signal = signals[self._at]
            self._at += 1
            if is_message(signal) and signal.parent not in self._activation_ids:  # no turn has sent it
                self._activations_before = self._log.activations
            self._log.add(
                LogEntry(
                    signal.id, signal.run_id, signal.seq, signal.seq, signal.name, signal.payload, signal.agent, signal.parent,
                    is_untrusted=signal.seq in self._recording.untrusted, is_deferred=signal.id in self._pending,
                )
            )  # fmt: skip
            if signal.name == "workflow:forked":
                self._activations_before = self._log.activations
        return self._view()

    def _view(self) -> RunView:
        log = self._log
        memory: dict[str, Any] = new_memory(self._workflow, self._recording.signals[0].timestamp)
        joins: Mapping[str, Any] = {agent: dict(members) for agent, members in log.join_signals.items()}
        memory |= {"agents": list(self._agents), "joins": dict(log.joins), "join_signals": joins, "turns": log.turns,
                   "failed": log.failed, "partial": self.partial, "skipped": log.skipped,
                   ACTIVATIONS_BEFORE: self._activations_before}  # fmt: skip
        if log.untrusted:
            mark_untrusted(memory, log.untrusted)
        reason = _reason_of(log.ending)
        status: Any = "running" if log.ending is None else "terminating"
        if log.is_session:
            memory[SESSION] = CLOSED if reason == CLOSED else OPEN
        if reason is not None and not (log.is_session and reason == CLOSED):
            memory[STOPPED_BY] = reason
        run_id = self._recording.header.run_id
        return RunView(run_id, status, self._at, as_jsonb(log.state), memory, len(log.in_progress), 0, log.activations)


def is_message(signal: Signal) -> bool:
    """Whether a signal is a message: no agent and no turn has emitted it, and it is not about the run."""
    return signal.turn_id is None and signal.agent is None and not signal.name.startswith("workflow:")


def _reason_of(ending: LogEntry | None) -> Any:
    return ending.payload.get("reason") if ending is not None and isinstance(ending.payload, dict) else None


def claimed_views(
    recording: Recording, workflow: Workflow, agents: Sequence[str], turns: Mapping[str, str], pending: Collection[str]
) -> dict[str, list[RunView]]:
    """The runs that each turn may have read, the most probable one first. turns: their activations, by id. pending: see `RunViews`.

    The ledger does not have the moment of a claim. It is between the commit that activated the turn and the first one of the turn itself, and
    the first signal of the turn has the time after it.
    """
    places = {turn: _places(recording.signals, turn, activation) for turn, activation in turns.items()}
    views, found = RunViews(recording, workflow, agents, pending), dict[int, RunView]()
    for seq in sorted({seq for each in places.values() for seq in each}):
        found[seq] = views.before(seq)
    return {turn: [found[seq] for seq in each] for turn, each in places.items()}


def _places(signals: Sequence[Signal], turn: str, activation: str) -> list[int]:
    """The positions before which a turn may have been claimed."""
    first = next((n for n, s in enumerate(signals) if s.turn_id == turn), len(signals))
    begun = next((n for n, s in enumerate(signals) if s.id == activation), None)
    if begun is None or begun >= first:  # of the run from which this one was forked
        return [signals[first].seq if first < len(signals) else signals[-1].seq + 1]
    found, at = list[tuple[int, bool]](), signals[first].timestamp if first < len(signals) else None
    for n in range(
        begun + 1, first + 1
    ):  # after each commit that changed the state, beginning with that of the activation
        if n < len(signals) and signals[n].turn_id == signals[n - 1].turn_id:
            continue
        commit = next((m for m in range(n - 1, -1, -1) if signals[m].turn_id != signals[n - 1].turn_id), -1) + 1
        if found and not any(s.name.startswith("state:") for s in signals[commit:n]):
            continue
        found.append((signals[0].seq + n, at is None or signals[n - 1].timestamp <= at))
    before = [seq for seq, is_before in found if is_before]
    newest = before[-1] if before else found[0][0]
    return [newest, *(seq for seq, _ in found if seq != newest)][:_CLAIMS_MAX]
