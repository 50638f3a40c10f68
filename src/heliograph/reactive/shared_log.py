"""What a fork takes over from the log that it shares: state, joins, counters, and the turns in progress. Pure.

The entries of a log are enough for it; a checkpoint of the run stands for those before it (decision 0082). A commit is the unit: what was
recorded together is shared together, so a fork never begins between a signal and its consequences.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from heliograph.ids import signal_id
from heliograph.reactive.run_memory import SESSION
from heliograph.reactive.workflow import Workflow
from heliograph.records import Checkpoint
from heliograph.signals.model import LogEntry
from heliograph.signals.state_change import changed_key, changed_value
from heliograph.types import JsonObject

_END_NAMES = ("workflow:terminating", "workflow:end")
_COUNTED = ("success", "partial", "canceled")  # the outcomes of agent:failed that do not count as failures


def collected_names(workflow: Workflow) -> list[str] | None:
    """The names of signals that joins collect: of all signals without a reaction of their own, only these matter here. None: any name."""
    patterns = {pattern for agent in workflow.agents.values() for pattern in agent.activate_when_all}
    return sorted(pattern.text for pattern in patterns) if all(pattern.is_exact for pattern in patterns) else None


@dataclass(slots=True)
class SharedLog:
    """The fold of a log up to one of its commits.

    in_progress: the activations without an end, by id. ended: the activations whose turns ended after the checkpoint. deferred: signals
    whose reaction the log does not show. ending: the first signal with which the run began to end.
    """

    workflow: Workflow
    state: JsonObject = field(default_factory=dict)
    untrusted: set[str] = field(default_factory=set)
    joins: dict[str, list[int]] = field(default_factory=dict)
    join_signals: dict[str, dict[str, str]] = field(default_factory=dict)
    turns: int = 0
    failed: int = 0
    partial: int = 0
    skipped: int = 0
    activations: int = 0
    in_progress: dict[str, LogEntry] = field(default_factory=dict)
    ended: list[str] = field(default_factory=list)
    deferred: dict[str, LogEntry] = field(default_factory=dict)
    ending: LogEntry | None = None
    is_session: bool = False
    # by signal: the agents whose joins it matched
    _joined: dict[str, set[str]] = field(default_factory=dict)

    @classmethod
    def after(cls, workflow: Workflow, checkpoint: Checkpoint, open_entries: Iterable[LogEntry]) -> SharedLog:
        """The fold up to a checkpoint. open_entries: the activations of the turns that were in progress there.

        A join keeps the patterns that the application still has: one with fewer patterns must not count those that it has lost.
        """
        memory, agents = checkpoint.memory, workflow.agents
        joins = {
            agent: [n for n in met if n < len(agents[agent].activate_when_all)]
            for agent, met in memory.joins.items()
            if agent in agents
        }
        base = (memory.join_base or 0) + 1
        signals = {
            agent: {n: each if isinstance(each, str) else signal_id(checkpoint.run_id, base + each)
                    for n, each in members.items() if n.isdecimal() and int(n) in joins.get(agent, [])}
            for agent, members in memory.join_signals.items()
        }  # fmt: skip
        return cls(
            workflow, checkpoint.state, set(memory.untrusted_keys), joins, {agent: members for agent, members in signals.items() if members},
            memory.turns, memory.failed, memory.partial, memory.skipped, checkpoint.activations, {entry.id: entry for entry in open_entries},
            is_session=memory.session is not None,
        )  # fmt: skip

    def add(self, entry: LogEntry) -> None:
        """Add the next entry of the log."""
        payload: Any = entry.payload if isinstance(entry.payload, dict) else {}
        if entry.is_deferred:
            self.deferred[entry.id] = entry
        else:
            self._collect(entry)
        match entry.name:
            case "workflow:start" | "workflow:forked":
                self._begin(payload)
            case "agent:activated":
                self.activations += 1
                self.in_progress[entry.id] = entry
                self._answer(entry, payload)
            case "agent:skipped":
                self.skipped += 1
                self._answer(entry, payload)
            case "agent:completed" | "agent:failed":
                self._end(entry, payload)
            case name if name in _END_NAMES:
                self.ending = self.ending or entry
            case name if (key := changed_key(name)) is not None:
                self._change(key, payload, is_untrusted=entry.is_untrusted)

    def _begin(self, payload: Any) -> None:
        """The start of a run, or of a fork: it names the turns in progress that begin again."""
        if isinstance(payload.get("state"), dict):
            self.state = dict(payload["state"])
            self.untrusted.clear()
        self.is_session = payload.get(SESSION) is True
        self.activations -= len(self.in_progress)
        self.in_progress.clear()
        self.deferred.clear()

    def _change(self, key: str, payload: Any, *, is_untrusted: bool) -> None:
        self.state[key] = changed_value(self.state.get(key), payload)
        (self.untrusted.add if is_untrusted else self.untrusted.discard)(key)

    def _end(self, entry: LogEntry, payload: Any) -> None:
        self.turns += 1
        if entry.name == "agent:failed" and payload.get("outcome") not in _COUNTED:
            self.failed += 1
        self.ended.append(str(entry.parent))
        self.in_progress.pop(str(entry.parent), None)

    def _collect(self, entry: LogEntry) -> None:
        """Collect the signal for the joins that wait for it, as `ReactionBuilder` does: one that is complete begins again."""
        met: dict[str, list[int]] = {}
        for agent, pattern in self.workflow.wakes.match(entry.name):
            if not (entry.name in ("agent:activated", "agent:skipped") and entry.agent == agent):
                met.setdefault(agent, []).append(pattern)
        for agent, patterns in met.items():
            if -1 in patterns:
                continue
            collected = sorted({*self.joins.get(agent, []), *patterns})
            if len(collected) == len(self.workflow.agents[agent].activate_when_all):
                self._begin_join(agent)
                continue
            self.joins[agent] = collected
            members = self.join_signals.setdefault(agent, {})
            for pattern in patterns:
                members.setdefault(str(pattern), entry.id)
            self._joined.setdefault(entry.id, set()).add(agent)

    def _begin_join(self, agent: str) -> None:
        self.joins[agent] = []
        self.join_signals.pop(agent, None)

    def _answer(self, entry: LogEntry, payload: Any) -> None:
        """An agent was activated or skipped: its cause shows that the run had reacted to signals that were pending.

        If its join is not complete here, the run began with another application, and the join begins again.
        """
        for deferred in [each for each in self.deferred.values() if each.seq <= self._reacted_upto(entry, payload)]:
            del self.deferred[deferred.id]
            self._collect(deferred)
        if entry.agent in self._joined.get(str(entry.parent), ()):
            self._begin_join(str(entry.agent))

    def _reacted_upto(self, entry: LogEntry, payload: Any) -> int:
        """The position up to which the run had reacted to pending signals: to all of them if it reacts to one in this commit."""
        if str(entry.parent) in self.deferred:
            return entry.commit_seq - 1
        joined = payload.get("joined")
        members = [each.get("signal") for each in joined if isinstance(each, dict)] if isinstance(joined, list) else []
        return max((self.deferred[member].seq for member in members if member in self.deferred), default=0)
