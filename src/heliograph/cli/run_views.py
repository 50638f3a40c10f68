"""Views of a run: JSON lines for programs, plain lines for pipes and files. live_view.py serves terminals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TextIO

from heliograph.adapters.signal_lines import SignalLines
from heliograph.cli.output import DirectOutput, json_line, line, note, piece, width
from heliograph.ledger.rows import TurnRow
from heliograph.signals.model import Signal, to_wire
from heliograph.signals.pattern_table import name_filter
from heliograph.signals.signal_text import WIDTH

NameFilter = Callable[[str], bool]  # whether a view shows signals with this name

# Signals that a view omits: the lifecycle, and those whose content another line has. `agent:failed` has the reason of an unrecoverable
# `error`, `agent:completed` the values of the state, the deltas the text, and the closing block the end.
ROUTINE = (
    "ready", "plan_ready", "action_complete", "reflection_complete", "terminated", "heartbeat", "error", "state:**", "harness:start",
    "harness:end", "text:complete", "thinking:complete", "workflow:start", "workflow:end",
)  # fmt: skip


def work_filter(patterns: Sequence[str], *, shows_all: bool) -> NameFilter:
    """The filter of a view: the signals that match a pattern; without patterns, all that are not ROUTINE, or all."""
    if patterns or shows_all:
        return name_filter(patterns)
    is_routine = name_filter(ROUTINE)
    return lambda name: not is_routine(name)


class View(Protocol):
    """A view of a run. A method may block while the output accepts nothing."""

    def show(self, signal: Signal) -> None:
        """The next signal of the log."""
        ...

    def see_turns(self, turns: Sequence[TurnRow]) -> None:
        """Show the current turns; called about once a second."""
        ...

    def note(self, text: str) -> None:
        """A remark about the run, apart from its signals."""
        ...

    def warn(self, text: str) -> None:
        """An action that the run needs to continue; printed to stderr."""
        ...

    def prompt(self, text: str) -> None:
        """A text for the person at the terminal who answers a question. Until `resume`, the view shows nothing else."""
        ...

    def resume(self) -> None:
        """Show signals again after the question."""
        ...

    def close(self) -> None:
        """No more signals for now; a second call does nothing."""
        ...


class JsonView:
    """One signal per line and nothing else; notes go to stderr."""

    def __init__(self, file: TextIO, is_wanted: NameFilter):
        self._file = file
        self._is_wanted = is_wanted

    def show(self, signal: Signal) -> None:
        if self._is_wanted(signal.name):
            json_line("signal", to_wire(signal), self._file)

    def see_turns(self, turns: Sequence[TurnRow]) -> None:
        """Do nothing: the printed signals contain the progress of the turns."""

    def note(self, text: str) -> None:
        note(text)

    def warn(self, text: str) -> None:
        note(text)

    def prompt(self, text: str) -> None:
        """Do nothing: programs are not asked."""

    def resume(self) -> None:
        """Do nothing: programs are not asked."""

    def close(self) -> None:
        """Every line has been written."""


class LineView:
    """The lines of the signals, see `SignalLines`. file: None for the standard output."""

    def __init__(self, is_wanted: NameFilter, file: DirectOutput | None = None):
        self._file = file
        self._lines = SignalLines(self.note, width=width(WIDTH))
        self._is_wanted = is_wanted
        self._held: list[Callable[[], None]] | None = None  # what is printed at `resume`

    def show(self, signal: Signal) -> None:
        if self._is_wanted(signal.name):
            self._now_or_later(lambda: self._lines.show(signal))

    def see_turns(self, turns: Sequence[TurnRow]) -> None:
        """Do nothing: the printed signals contain the progress of the turns."""

    def note(self, text: str) -> None:
        self._now_or_later(lambda: line(text, self._file))

    def warn(self, text: str) -> None:
        note(text)

    def prompt(self, text: str) -> None:
        if self._held is None:
            self._lines.flush()
            self._held = []
        piece(text, self._file)

    def resume(self) -> None:
        held, self._held = self._held or [], None
        for each in held:
            each()

    def close(self) -> None:
        self.resume()
        self._lines.flush()

    def _now_or_later(self, show: Callable[[], None]) -> None:
        if self._held is None:
            show()
        else:
            self._held.append(show)
