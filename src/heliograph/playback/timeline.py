"""The log of a run with its checkpoints, so that the situation at any position is near."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from heliograph.playback.checkpoints import Checkpoints
from heliograph.playback.fold import Fold
from heliograph.playback.folded_parts import DoneCalls
from heliograph.playback.log import BLOCK, SignalLog
from heliograph.playback.snapshot import Snapshot, take_snapshot
from heliograph.playback.streams import StreamedTexts
from heliograph.signals.model import Signal


class Timeline:
    """The signals of one run, which may grow. One fold follows the end of the log, and leaves checkpoints behind it."""

    def __init__(self) -> None:
        self.log = SignalLog()
        self.checkpoints = Checkpoints(self.log)
        self._texts = StreamedTexts(self.log)
        self._done = DoneCalls()
        self._newest = Fold(self.log, self._texts, self._done)
        self._recent: Fold | None = None

    def extend(self, signals: Iterable[Signal]) -> int:
        """Add the next signals; return how many. Raises InvalidInput, after the signals before the invalid one were added."""
        count, source = 0, iter(signals)
        while True:
            entries = []
            try:
                for signal in islice(source, BLOCK):
                    entries.append(self.log.append(signal))  # noqa: PERF401  an error must not lose those before it
            finally:
                self._newest.apply(entries)
                self.checkpoints.offer(self._newest)
            if not entries:
                return count
            count += len(entries)

    def fold_at(self, seq: int) -> Fold:
        """Return the fold at a position, for reading only: the next call may change it."""
        if seq == self._newest.seq:
            return self._newest
        fold = self._recent
        if fold is None or not self.checkpoints.last_before(seq) <= fold.seq <= seq:
            fold = self._recent = self.checkpoints.restore(seq)
        fold.advance(seq)
        return fold

    def snapshot(self, seq: int) -> Snapshot:
        """Return the snapshot at a position that the log has, or before its first signal."""
        return take_snapshot(self.fold_at(seq), self._texts, self._done)
