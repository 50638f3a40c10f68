"""Views of a run: JSON lines for programs, plain lines for pipes and files. live_view.py serves terminals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TextIO

from heliograph.adapters.signal_lines import SignalLines
from heliograph.cli.output import DirectOutput, json_line, line, note
from heliograph.ledger.rows import TurnRow
from heliograph.signals.model import Signal, to_wire

NameFilter = Callable[[str], bool]  # whether a view shows signals with this name


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
            json_line(to_wire(signal), self._file)

    def see_turns(self, turns: Sequence[TurnRow]) -> None:
        """Do nothing: the printed signals contain the progress of the turns."""

    def note(self, text: str) -> None:
        note(text)

    def warn(self, text: str) -> None:
        note(text)

    def close(self) -> None:
        """Every line has been written."""


class LineView:
    """The lines of the signals, see `SignalLines`. file: None for the standard output."""

    def __init__(self, is_wanted: NameFilter, file: DirectOutput | None = None):
        self._file = file
        self._lines = SignalLines(self.note)
        self._is_wanted = is_wanted

    def show(self, signal: Signal) -> None:
        if self._is_wanted(signal.name):
            self._lines.show(signal)

    def see_turns(self, turns: Sequence[TurnRow]) -> None:
        """Do nothing: the printed signals contain the progress of the turns."""

    def note(self, text: str) -> None:
        line(text, self._file)

    def warn(self, text: str) -> None:
        note(text)

    def close(self) -> None:
        self._lines.flush()
