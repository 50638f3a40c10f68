"""The texts that a run streams, each stored once: in its complete signal if there is one, otherwise in a buffer.

A text at an earlier position is a prefix of it. So no checkpoint copies text, and reading one joins no deltas.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import Any

from heliograph.playback.log import SignalLog

_PIECES_MAX = 256


class StreamedTexts:
    """Texts by the position of their first delta. A fold reports each stream once, in the order of the log."""

    def __init__(self, log: SignalLog):
        self._log = log
        self._buffers: dict[int, _Buffer] = {}  # of streams without an equal complete text
        self._starts, self._completes = array("Q"), array("Q")  # the others
        self._late: dict[int, int] = {}  # those that ended after a later stream

    def begin(self, start: int) -> None:
        self._buffers[start] = _Buffer()

    def extend(self, start: int, content: str) -> None:
        self._buffers[start].add(content)

    def complete(self, start: int, complete: int, content: str) -> None:
        """The stream is complete: drop its buffer if the signal at `complete` has the same text."""
        if self._buffers[start].text() != content:
            return
        del self._buffers[start]
        if self._starts and start < self._starts[-1]:
            self._late[start] = complete
        else:
            self._starts.append(start)
            self._completes.append(complete)

    def read(self, start: int, length: int) -> str:
        """Return the first `length` characters of a stream."""
        buffer = self._buffers.get(start)
        if buffer is not None:
            return buffer.text()[:length]
        return self.content(self._complete_of(start))[:length]

    def content(self, seq: int) -> str:
        """Return the text of the signal at a position."""
        payload: Any = self._log.entry(seq).payload
        return str(payload["content"])

    def _complete_of(self, start: int) -> int:
        if (late := self._late.get(start)) is not None:
            return late
        return self._completes[bisect_left(self._starts, start)]


class _Buffer:
    """A text that grows by small pieces. Pieces are joined now and then, each a few times, so that they take no memory of their own."""

    __slots__ = ("_joined", "_pieces")

    def __init__(self) -> None:
        self._joined: list[str] = []  # each at least twice as long as the next
        self._pieces: list[str] = []

    def add(self, piece: str) -> None:
        self._pieces.append(piece)
        if len(self._pieces) == _PIECES_MAX:
            self._join()

    def text(self) -> str:
        return "".join((*self._joined, *self._pieces))

    def _join(self) -> None:
        newest = "".join(self._pieces)
        self._pieces.clear()
        while self._joined and len(self._joined[-1]) < 2 * len(newest):
            newest = self._joined.pop() + newest
        self._joined.append(newest)
