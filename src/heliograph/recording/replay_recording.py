"""Replay a recording: every part again, without models, tools, network and database, and compare the signals."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from heliograph.error_text import counted, safe_repr
from heliograph.errors import InvalidInput
from heliograph.execution.packed_commit import whole_entry
from heliograph.execution.tape import ANSWERS, NUMBERLESS, VALUES
from heliograph.key_patterns import without_secrets
from heliograph.reactive.workflow import Workflow
from heliograph.recording.divergence import Divergence
from heliograph.recording.ledger_parts import is_of_ledger
from heliograph.recording.ledger_run import replays_from_ledger
from heliograph.recording.new_activations import compared_reactions, new_activations
from heliograph.recording.no_network import one_replay
from heliograph.recording.partial_changes import with_partial_changes
from heliograph.recording.policy import ReplayPolicy
from heliograph.recording.recorded_runs import RecordedRuns
from heliograph.recording.recording import Gap, Part, Recording
from heliograph.recording.replay_part import PartReplay, replay_part, replayable
from heliograph.recording.script import Key, key_of
from heliograph.signals.model import Signal


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """The outcome of a replay.

    divergences: the differences, at most one of each part, in the order of the log. reproduced: how many signals the code gave again.
    inputs: how many came from outside. gaps: the parts that were not replayed. recording: the replay itself as a recording.
    """

    recording: Recording
    divergences: Sequence[Divergence]
    reproduced: int
    gaps: Sequence[Gap]

    @property
    def first(self) -> Divergence | None:
        """The first divergence; None if there is none."""
        return self.divergences[0] if self.divergences else None

    @property
    def is_same(self) -> bool:
        return not self.divergences

    @property
    def signals(self) -> Sequence[Signal]:
        """The signals of the run: those that the code gave again, and those from outside."""
        return self.recording.signals

    def line(self) -> str:
        """The outcome in one line, for CI."""
        if self.first is not None:
            more = f" (and {counted(len(self.divergences) - 1, 'more part')})" if len(self.divergences) > 1 else ""
            return f"{self.first.line()}{more}"
        parts, signals = counted(len(self.recording.parts), "part"), len(self.recording.signals)
        gaps = f", {counted(len(self.gaps), 'gap')}" if self.gaps else ""
        return (f"replayed {self.recording.header.run_id}: {parts}, {self.reproduced} of {counted(signals, 'signal')} reproduced, "
                f"{signals - self.reproduced} from outside{gaps}")  # fmt: skip

    def lines(self) -> Iterator[str]:
        """The outcome for people."""
        if self.first is None:
            yield self.line()
        for divergence in self.divergences:
            yield from divergence.lines()
        for gap in self.gaps:
            yield f"  gap: {gap.part}: {gap.reason}"


def replay_recording(recording: Recording, workflow: Workflow, policy: ReplayPolicy | None = None) -> ReplayResult:
    """Replay a recording with the present code of its application.

    Raises InvalidInput (`other_application`) for a recording of another application.
    """
    if recording.header.application != workflow.name:
        raise InvalidInput(f"the recording is of the application {safe_repr(recording.header.application)}, not of "
                           f"{workflow.name}; name the application that it was recorded with",
                           code="other_application", path="/application")  # fmt: skip
    if not _is_in_loop():
        return _replay(recording, workflow, policy or ReplayPolicy())
    found: list[ReplayResult | BaseException] = []

    def work() -> None:
        try:
            found.append(_replay(recording, workflow, policy or ReplayPolicy()))
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=work, name="heliograph replay")  # this thread runs a loop already
    thread.start()
    thread.join()
    [result] = found
    if isinstance(result, BaseException):
        raise result
    return result


def _is_in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


@one_replay()
def _replay(recording: Recording, workflow: Workflow, policy: ReplayPolicy) -> ReplayResult:
    recording = policy.applied_to(with_partial_changes(recording))
    own = replayable(policy.workflow_for(workflow, recording))
    if any(map(is_of_ledger, recording.parts)):
        return _replay_from_ledger(recording, own, policy)
    runs, parts, divergences, reproduced = RecordedRuns(recording.parts), [], [], dict[int, Signal]()
    for part in recording.parts:
        replay = replay_part(recording, runs, part, own, policy)
        if replay.divergence is not None:
            divergences.append(replay.divergence)
        reproduced |= replay.signals
        parts.append(_again(part, replay))
    divergences += new_activations(recording, own, compared_reactions(recording))
    signals = [reproduced.get(signal.seq, signal) for signal in recording.signals]
    again = Recording(recording.header, signals, parts, recording.gaps, recording.untrusted)
    return ReplayResult(again, sorted(divergences, key=lambda each: each.seq), len(reproduced), recording.gaps)


def _replay_from_ledger(recording: Recording, workflow: Workflow, policy: ReplayPolicy) -> ReplayResult:
    divergences, gaps, reproduced = [], list(recording.gaps), dict[int, Signal]()
    for replay in replays_from_ledger(recording, workflow, policy):
        if replay.divergence is not None:
            divergences.append(replay.divergence)
        gaps += replay.gaps
        reproduced |= replay.signals
    changed = {divergence.part for divergence in divergences}
    compared = {signal.seq for signal in recording.signals if signal.turn_id in changed}
    divergences += new_activations(recording, workflow, compared)
    return ReplayResult(recording, sorted(divergences, key=lambda each: each.seq), len(reproduced), gaps)


def _again(part: Part, replay: PartReplay) -> Part:
    """The part as the replay has recorded it, with the positions of its signals.

    Entries that happened at the same moment, in tasks that ran at the same time, have the order of the recording. Entries after the
    last recorded one are dropped: they were not recorded the first time either.
    """
    places = {call[1]: call[4] for call in part.calls()}
    entries = [*map(whole_entry, without_secrets(msgspec.json.decode(msgspec.json.encode(replay.tape.entries))))]
    _renumber(entries, part)
    for entry in entries:
        if entry[0] == "call" and entry[1] in places:
            entry[4] = places[entry[1]]
    before = Counter(map(_line, part.entries))
    if not before - Counter(map(_line, entries)):
        return Part(part.name, part.data, part.entries)
    return Part(part.name, part.data, entries)


def _renumber(entries: Sequence[list[Any]], part: Part) -> None:
    """Give calls the numbers that they have in the recording: tasks that ran at the same time begin theirs in any order."""
    numbers: dict[Key, deque[int]] = defaultdict(deque)
    for entry in part.entries:
        if entry[0] not in ANSWERS and entry[0] not in VALUES:
            numbers[key_of(entry)].append(entry[1])
    given: dict[int, int] = {}
    for entry in entries:
        if entry[0] in NUMBERLESS or entry[0] in VALUES:
            continue
        if entry[0] not in ANSWERS and (known := numbers[key_of(entry)]):
            given[entry[1]] = known.popleft()
        entry[1] = given.get(entry[1], entry[1])


def _line(entry: object) -> bytes:
    return msgspec.json.encode(entry, order="sorted")
