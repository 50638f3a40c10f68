"""Replay a run that nobody recorded: its start, then each turn in the order in which they ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from heliograph.codes import RESULT_MISSING
from heliograph.json_differences import differences
from heliograph.key_patterns import without_secrets
from heliograph.reactive.react import react_to_start
from heliograph.reactive.workflow import Workflow
from heliograph.recording.conversations import conversations_of
from heliograph.recording.divergence import Divergence
from heliograph.recording.expected_signals import is_outside
from heliograph.recording.ledger_parts import LEDGER
from heliograph.recording.ledger_reactions import ReactionReplay, logged_reactions
from heliograph.recording.ledger_replay import LedgerReplay
from heliograph.recording.outside_reads import outside_reads
from heliograph.recording.policy import ReplayPolicy, agents_of
from heliograph.recording.recording import Gap, Part, Recording
from heliograph.recording.run_views import RunViews, claimed_views
from heliograph.recording.turn_of_ledger import TurnOfLedger
from heliograph.signals.model import Signal
from heliograph.turn.calls import DELEGATION


@dataclass(frozen=True, slots=True)
class ReplayedPart:
    """The outcome of one part."""

    divergence: Divergence | None = None
    gaps: Sequence[Gap] = ()
    signals: Mapping[int, Signal] = field(default_factory=dict)


def replays_from_ledger(recording: Recording, workflow: Workflow, policy: ReplayPolicy) -> Iterator[ReplayedPart]:
    """Replay the parts of a run from the ledger."""
    start = recording.start
    agents = sorted(workflow.agents) if start is None else sorted(agents_of(start))
    if start is not None:
        yield _replayed_start(recording, start, workflow)
    turns: dict[str, Part] = {part.name: part for part in recording.parts if part is not start}
    claimed: dict[str, Any] = {name: part.data["claimed"] for name, part in turns.items()}
    activations = {name: each["activation_id"] for name, each in claimed.items()}
    reactions = logged_reactions(recording.signals)
    pending = {cause.id for each in reactions for cause in each.causes}
    views = claimed_views(recording, workflow, agents, activations, pending)
    ends = {s.turn_id: s.seq for s in recording.signals if s.name in ("agent:completed", "agent:failed")}
    conversations = conversations_of(recording)
    newest, at_reactions = (RunViews(recording, workflow, agents, pending) for _ in range(2))
    for name, part in sorted(turns.items(), key=lambda each: ends.get(each[0], 0)):
        turns_at = [
            TurnOfLedger(recording, part, workflow, policy, view, newest.before, conversations) for view in views[name]
        ]
        try:
            turn, replay = _first_that_matches(turns_at)
            yield _with_reads(turn, replay, _unmarked(replay, name))
        except (KeyError, TypeError, ValueError, AttributeError) as error:  # of a file that was edited
            message = f"the part cannot be replayed: {type(error).__name__}: {error}"
            seq = next((s.seq for s in recording.signals if s.turn_id == name), 1)
            yield ReplayedPart(Divergence("error", name, claimed[name]["agent"], seq, message))
        newest.partial += _is_partial(part)
    for reaction in reactions:
        again = ReactionReplay(recording, reaction, workflow, policy)
        again.run(at_reactions)
        yield ReplayedPart(again.divergence, (), again.signals)


def _is_partial(part: Part) -> bool:
    """Whether a turn counts as one with a partial output, as in `count_ending`."""
    ledger: Any = part.data[LEDGER]
    content = ledger.get("content")
    error = content.get("error") if isinstance(content, dict) else None
    return ledger.get("outcome") == "partial" or (isinstance(error, dict) and error.get("code") == RESULT_MISSING)


def _first_that_matches(turns: Sequence[TurnOfLedger]) -> tuple[TurnOfLedger, LedgerReplay]:
    """The replay of a turn at the moment of its claim that reproduces it; of the most probable one if none does."""
    found = []
    for turn in turns:
        replay = LedgerReplay(turn)
        replay.run()
        if replay.divergence is None:
            return turn, replay
        found.append((turn, replay))
    return found[0]


def _unmarked(replay: LedgerReplay, turn_id: str) -> list[Gap]:
    """The gap of the model requests of which the ledger has no hashes: an earlier version recorded them."""
    if not (places := replay.unmarked):
        return []
    of = f"signal {places[0]}" if len(places) == 1 else f"signals {', '.join(map(str, places))}"
    return [Gap(turn_id, f"the ledger has no hashes of the system text and the tools of the model request at {of}, so they are not "
                "compared: an earlier version of Heliograph recorded it")]  # fmt: skip


def _with_reads(turn: TurnOfLedger, replay: LedgerReplay, gaps: Sequence[Gap]) -> ReplayedPart:
    """The outcome of a turn. A difference of a turn that reads the clock or chance, or attempts to reach the network, is a gap: it may come from there.

    The second replay has another clock and another chance, so a value that is the same in both may come from the code alone.
    """
    name, divergence = turn.part.name, replay.divergence
    if divergence is None or divergence.kind not in ("signal", "request", "arguments", "end"):
        return ReplayedPart(
            divergence, [*gaps, *([] if replay.gap is None else [Gap(name, replay.gap)])], replay.signals
        )
    again = LedgerReplay(turn)
    with outside_reads() as reads:
        again.run()
    read = ", ".join(f"{function} at {place}" for function, place in reads.items())
    actions = [*([f"reads {read}"] if read else []), *([again.attempt] if again.attempt is not None else [])]
    if not actions:
        return ReplayedPart(divergence, gaps, replay.signals)
    is_varying = again.divergence is None or again.divergence.replayed != divergence.replayed
    cause = "a second replay gives another value there" if is_varying else "a change of the code may be the cause, too"
    gap = (f"not compared from signal {divergence.seq} of {divergence.agent} on: {divergence.difference}; before it, the code {' and '.join(actions)}, "
           f"outside of a step, so the ledger does not have the value, and {cause}")  # fmt: skip
    return ReplayedPart(None, [*gaps, Gap(name, gap)], replay.signals)


def _is_received(signals: Sequence[Signal]) -> bool:
    """Whether the run executes a task of another system, see `react_to_task`: its start activates nobody."""
    return len(signals) > 1 and signals[1].name == DELEGATION and signals[1].turn_id is None


def _replayed_start(recording: Recording, part: Part, workflow: Workflow) -> ReplayedPart:
    first, data = recording.signals[0], part.data
    state: Any = data["state"]
    caller: Any = data["caller"]
    reaction = react_to_start(workflow, str(data["run_id"]), state, first.timestamp, lambda kind: kind, caller)
    found: dict[int, Signal] = {}
    for n, draft in enumerate(reaction.drafts[:1] if _is_received(recording.signals) else reaction.drafts):
        signal = recording.signals[n] if n < len(recording.signals) else None
        recorded = (
            None
            if signal is None
            else {"name": signal.name, "payload": without_secrets(signal.payload), "agent": signal.agent}
        )
        replayed = {"name": draft.name, "payload": without_secrets(draft.payload), "agent": draft.agent}
        different = tuple(each for each in differences(recorded, replayed) if not is_outside(draft.name, each.path))
        if signal is None or different:
            divergence = Divergence(
                "signal", part.name, None, n + 1, f"{draft.name} differs", recorded, replayed, different
            )
            return ReplayedPart(divergence, (), found)
        found[signal.seq] = signal
    return ReplayedPart(None, (), found)
