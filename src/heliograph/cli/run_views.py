"""Views of a run: JSON lines for programs, plain lines for pipes and files. live_view.py serves terminals."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol, TextIO

from heliograph.cli.output import clock, json_line, line, note
from heliograph.cli.signal_text import line_payload, text_of
from heliograph.error_text import safe_repr
from heliograph.ledger.rows import TurnRow
from heliograph.signals.model import Signal, to_wire
from heliograph.signals.trace import DELTA_NAMES

TEXT_WIDTH = 100


class View(Protocol):
    """A view of a run. All methods are called in the event loop."""

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

    def __init__(self, file: TextIO):
        self._file = file

    def show(self, signal: Signal) -> None:
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
    """One line per signal: time, name, agent, short payload. Deltas are joined to lines of text."""

    def __init__(self) -> None:
        # (agent, name): the time of the first unprinted delta, and the text since then
        self._texts: dict[tuple[str, str], tuple[datetime, str]] = {}

    def show(self, signal: Signal) -> None:
        if signal.name in DELTA_NAMES:
            self._add(signal)
            return
        self._flush(signal.agent or "")
        self._row(signal.timestamp, signal.name, signal.agent or "-", line_payload(signal))

    def see_turns(self, turns: Sequence[TurnRow]) -> None:
        """Do nothing: the printed signals contain the progress of the turns."""

    def note(self, text: str) -> None:
        line(text)

    def warn(self, text: str) -> None:
        note(text)

    def close(self) -> None:
        for agent, _ in list(self._texts):
            self._flush(agent)

    def _add(self, delta: Signal) -> None:
        content = text_of(delta.payload)
        key = (delta.agent or "", delta.name)
        at, text = self._texts.get(key, (delta.timestamp, ""))
        *ready, rest = _broken(text + content)
        for each in ready:
            self._line(at, delta.name, key[0], each)
        self._texts[key] = (delta.timestamp if ready else at, rest)

    def _flush(self, agent: str) -> None:
        for key in [key for key in self._texts if key[0] == agent]:
            at, text = self._texts.pop(key)
            if text.strip():
                self._line(at, key[1], agent, text)

    def _line(self, at: datetime, name: str, agent: str, text: str) -> None:
        self._row(at, name, agent, safe_repr(text, 2 * TEXT_WIDTH))

    def _row(self, at: datetime, name: str, agent: str, text: str) -> None:
        line(f"{clock(at)}  {name.ljust(22)}  {agent.ljust(14)}  {text}".rstrip())


def _broken(text: str) -> list[str]:
    """`text` at its line ends, and before the last space that fits; the last piece is not complete yet."""
    *pieces, rest = text.split("\n")
    while len(rest) > TEXT_WIDTH:
        at = rest.rfind(" ", 1, TEXT_WIDTH)
        at = TEXT_WIDTH if at < 0 else at + 1
        pieces.append(rest[:at])
        rest = rest[at:]
    return [*pieces, rest]
