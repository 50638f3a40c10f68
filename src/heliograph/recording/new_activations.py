"""Find the agents that would wake now by signals to which no reaction was recorded, because no agent subscribed to them then.

Commits in the middle of a turn, reports and messages log signals that wake agents only in a later reaction. If no agent subscribed to a
signal, there was none, so no part of the recording shows what changed subscriptions do with it. The replay of the parts compares all others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from heliograph.errors import HeliographError
from heliograph.reactive.react import react_to_pending
from heliograph.reactive.workflow import Workflow
from heliograph.recording.compared_values import plain
from heliograph.recording.divergence import Divergence
from heliograph.recording.expected_signals import CAUSED
from heliograph.recording.ledger_reactions import logged_reactions
from heliograph.recording.policy import agents_of
from heliograph.recording.recording import Recording
from heliograph.recording.run_views import RunViews
from heliograph.records import PendingRun, PendingSignal
from heliograph.signals.model import Signal

_REACTING = frozenset(("start_runs", "finish", "react"))  # their commits contain the reaction to their signals


def new_activations(recording: Recording, workflow: Workflow, compared: Collection[int]) -> list[Divergence]:
    """The activations and skips that the application adds now: one for each agent and name, at the first signal that causes it.

    compared: the positions of signals whose reactions the replay of the parts has compared. Empty for a run that has not ended, or that
    ended before it had reacted to everything.
    """
    names = {signal.name for signal in recording.signals}
    if recording.start is None or "workflow:end" not in names or "workflow:terminating" in names:
        return []
    try:
        return list(_found(recording, workflow, agents_of(recording.start), compared))
    except (HeliographError, KeyError, TypeError, ValueError, AttributeError):
        return []  # a file that was edited: the replay of its parts names the place


def compared_reactions(recording: Recording) -> set[int]:
    """The positions of the signals that a recorded part committed together with the reaction to them."""
    places = [
        call[4] for part in recording.parts for call in part.calls() if call[2] in _REACTING and "first" in call[4]
    ]
    return {seq for place in places for seq in range(place["first"], place["first"] + place["count"])}


def _found(
    recording: Recording, workflow: Workflow, agents: Collection[str], compared: Collection[int]
) -> Iterator[Divergence]:
    by_id = {signal.id: signal.name for signal in recording.signals}
    answered = {by_id.get(str(signal.parent)) for signal in recording.signals if signal.name in CAUSED}
    pending = {cause.id for each in logged_reactions(recording.signals) for cause in each.causes}
    views, found = RunViews(recording, workflow, sorted(agents), pending), set[tuple[str | None, str]]()
    for signal in recording.signals:
        if signal.name == "workflow:end":
            return
        if signal.name in answered or signal.name in CAUSED or signal.seq in compared or not _is_own(recording, signal):
            continue
        if not workflow.wakes.match(signal.name):
            continue
        run = PendingRun(
            workflow.name,
            views.before(signal.seq),
            [PendingSignal(signal.seq, signal.name, signal.payload, signal.agent)],
        )
        for draft in react_to_pending(workflow, run, signal.timestamp, lambda kind: kind).drafts:
            if draft.name in CAUSED and draft.parent == signal.id and (draft.agent, signal.name) not in found:
                found.add((draft.agent, signal.name))
                replayed: Any = {"name": draft.name, "payload": plain(draft.payload), "agent": draft.agent}
                message = f"there is one more signal, {draft.name}, which {signal.name} causes"
                yield Divergence(
                    "signal", f"reaction to signal {signal.seq}", draft.agent, signal.seq, message, None, replayed
                )


def _is_own(recording: Recording, signal: Signal) -> bool:
    """Whether a signal is of this run: not of one from which it was forked, and no signal of the run itself."""
    return signal.run_id == recording.header.run_id and not signal.name.startswith("workflow:")
