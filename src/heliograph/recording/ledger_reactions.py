"""Replay the reactions that workers computed apart from a turn, of a run that nobody recorded: which agents wake, and which are skipped.

The kernel records some signals without a reaction, such as the result of a call from outside, or the failure of a turn whose last
worker died. A worker reacts to them later. The log has the signals that a reaction caused, but not which others it covered. So each signal
that has caused an activation or a skip is reacted to again, and what it causes is compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heliograph.json_differences import differences
from heliograph.key_patterns import without_secrets
from heliograph.reactive.react import react_to_pending
from heliograph.reactive.workflow import Workflow
from heliograph.recording.compared_values import ordered, plain
from heliograph.recording.divergence import Divergence
from heliograph.recording.expected_signals import CAUSED
from heliograph.recording.policy import ReplayPolicy
from heliograph.recording.recording import Recording
from heliograph.recording.run_views import RunViews, is_message
from heliograph.records import PendingRun, PendingSignal
from heliograph.signals.model import Draft, Signal
from heliograph.types import JsonObject


@dataclass(frozen=True, slots=True)
class LoggedReaction:
    """A reaction in the log. seq: the position of its first signal. caused: the signals that each cause has caused, by its position."""

    seq: int
    causes: Sequence[Signal]
    caused: Mapping[int, Sequence[Signal]]


def logged_reactions(signals: Sequence[Signal]) -> list[LoggedReaction]:
    """The reactions to earlier signals that no turn has committed, without the starts of runs and of forks, and messages."""
    by_id, found = {signal.id: signal for signal in signals}, []
    for group in _groups(signals):
        caused: dict[int, list[Signal]] = {}
        for signal in group:
            cause = by_id.get(str(signal.parent))
            if signal.name in CAUSED and cause is not None and cause.seq < group[0].seq:
                caused.setdefault(cause.seq, []).append(signal)
        causes = [cause for cause in signals if cause.seq in caused] if caused else []
        if causes and group[0].name not in ("workflow:start", "workflow:forked"):
            found.append(LoggedReaction(group[0].seq, causes, caused))
    return found


def _groups(signals: Sequence[Signal]) -> Iterator[list[Signal]]:
    """The signals that no turn emitted, as far as they follow each other; a message and its activation are a group."""
    group: list[Signal] = []
    for signal in signals:
        is_full = len(group) == 2 and is_message(group[0])
        if group and (signal.turn_id is not None or is_message(signal) or is_full):
            yield group
            group = []
        if signal.turn_id is None:
            group.append(signal)
    if group:
        yield group


class ReactionReplay:
    """The replay of one reaction. divergence: the first difference. signals: those that it caused again, by their positions."""

    def __init__(self, recording: Recording, reaction: LoggedReaction, workflow: Workflow, policy: ReplayPolicy):
        self._recording = recording
        self._reaction = reaction
        self._workflow = workflow
        self._policy = policy
        self.divergence: Divergence | None = None
        self.signals: dict[int, Signal] = {}

    @property
    def name(self) -> str:
        return f"reaction at signal {self._reaction.seq}"

    def run(self, views: RunViews) -> None:
        """Replay the reaction. views: have read no later part of the log. Sets `divergence`."""
        causes = self._reaction.causes
        pending = [PendingSignal(s.seq, s.name, s.payload, s.agent) for s in causes]
        run = PendingRun(self._workflow.name, views.before(self._reaction.seq), pending)
        first = next(s for s in self._recording.signals if s.seq == self._reaction.seq)
        drafts = react_to_pending(self._workflow, run, first.timestamp, lambda kind: kind).drafts
        for cause in causes:
            replayed = [each for each in drafts if each.parent == cause.id and each.name in CAUSED]
            self._compare(cause, self._reaction.caused[cause.seq], replayed)

    def _compare(self, cause: Signal, recorded: Sequence[Signal], replayed: Sequence[Draft]) -> None:
        """Compare what a signal has caused, by its agents."""
        now = {each.agent: each for each in replayed}
        for signal in recorded:
            draft = now.pop(signal.agent, None)
            left = _shape(signal.name, without_secrets(signal.payload), signal.agent)
            if draft is None:
                self._diverge(signal, f"there is one signal less, {signal.name}", left, None)
                continue
            right = _shape(draft.name, plain(draft.payload), draft.agent)
            found = self._policy.counted(left, tuple(differences(ordered(left), ordered(right))))
            if found:
                self._diverge(signal, f"{signal.name} differs", left, right, found)
            else:
                self.signals[signal.seq] = signal
        for draft in now.values():
            right = _shape(draft.name, plain(draft.payload), draft.agent)
            self._diverge(
                recorded[-1], f"there is one more signal, {draft.name}, which {cause.name} causes", None, right
            )

    def _diverge(self, place: Signal, message: str, recorded: Any, replayed: Any, found: Any = ()) -> None:
        if self.divergence is None:
            agent = (replayed or recorded)["agent"]
            self.divergence = Divergence("signal", self.name, agent, place.seq, message, recorded, replayed, found)


def _shape(name: str, payload: Any, agent: str | None) -> JsonObject:
    return {"name": name, "payload": payload, "agent": agent}
