"""Signals as lines for people: one per signal, with streamed text joined to lines. Redacted, and without control characters."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from heliograph.error_text import printable, safe_repr
from heliograph.key_patterns import StreamedText
from heliograph.signals.model import Signal
from heliograph.signals.signal_text import WHOLE, clock, line_payload, text_of
from heliograph.signals.trace import DELTA_NAMES

TEXT_WIDTH = 100


class SignalLines:
    """Writes the lines of signals: time, name, agent, short payload. Deltas of one agent of a run are joined to lines of text.

    write: takes a line. has_ids: each line has the id of its signal, so that each delta has a line of its own.
    width: characters of a payload in a line, for a terminal; a file or a pipe has the whole payload.
    """

    def __init__(self, write: Callable[[str], None], *, has_ids: bool = False, width: int = WHOLE):
        self._write = write
        self._width = width
        self._has_ids = has_ids
        # (run, agent, name): the time of the first unwritten delta, the text, and the line that has no end yet
        self._texts: dict[tuple[str, str, str], tuple[datetime, StreamedText, str]] = {}

    def show(self, signal: Signal) -> None:
        """Write the lines that the signal completes."""
        if signal.name in DELTA_NAMES and not self._has_ids:
            self._add(signal)
            return
        self._flush(signal.run_id, signal.agent or "")
        self._row(signal.timestamp, signal.id, signal.name, signal.agent or "-", line_payload(signal, self._width))

    def flush(self) -> None:
        """Write the text that has no end of line yet."""
        for run_id, agent, _ in list(self._texts):
            self._flush(run_id, agent)

    def _add(self, delta: Signal) -> None:
        key = (delta.run_id, delta.agent or "", delta.name)
        at, streamed, line = self._texts.get(key, (delta.timestamp, StreamedText(), ""))
        # redacted before it is broken into lines: the end of a line may be in the middle of a secret
        *ready, line = _wrapped(line + streamed.add(text_of(delta.payload)))
        for each in ready:
            self._text(at, delta.name, key[1], each)
        self._texts[key] = (delta.timestamp if ready else at, streamed, line)

    def _flush(self, run_id: str, agent: str) -> None:
        for key in [key for key in self._texts if key[:2] == (run_id, agent)]:
            at, streamed, line = self._texts.pop(key)
            for each in _wrapped(line + streamed.end()):
                if each.strip():
                    self._text(at, key[2], agent, each)

    def _text(self, at: datetime, name: str, agent: str, text: str) -> None:
        self._row(at, "", name, agent, safe_repr(text, 2 * TEXT_WIDTH))

    def _row(self, at: datetime, signal_id: str, name: str, agent: str, text: str) -> None:
        if self._has_ids:
            self._write(printable(f"{clock(at)}  {signal_id}  {name}  {agent}  {text}".rstrip()))
        else:
            self._write(printable(f"{clock(at)}  {name.ljust(22)}  {agent.ljust(14)}  {text}".rstrip()))


def _wrapped(text: str) -> list[str]:
    """`text` at its line ends, and before the last space that fits; the last piece is not complete yet."""
    *pieces, rest = text.split("\n")
    while len(rest) > TEXT_WIDTH:
        at = rest.rfind(" ", 1, TEXT_WIDTH) + 1 or TEXT_WIDTH
        pieces.append(rest[:at])
        rest = rest[at:]
    return [*pieces, rest]
