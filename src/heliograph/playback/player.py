"""Play the signals of a run: forwards at its own speed or another one, backwards, and to any position.

A player is a state machine without a clock: `play` and `tick` receive the time from their caller, in seconds of any monotonic clock.
Its cursor is the position of the last signal that has been played.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from types import MappingProxyType

from heliograph.error_text import repr_of, safe_repr
from heliograph.errors import InvalidInput, NotFound
from heliograph.playback.log import SignalLog
from heliograph.playback.snapshot import Snapshot
from heliograph.playback.timeline import Timeline
from heliograph.signals.model import Signal
from heliograph.signals.pattern import compile_pattern

SPEED_MIN, SPEED_MAX = 0.01, 1000.0
GAP_SECONDS_MAX = 2.0
_PER_TICK_MAX = 5000  # signals, so that a tick takes a few milliseconds
_NAME_MAX = 200
_CHECKPOINTS_MAX = 1000


class Player:
    """Plays the signals of one run, which may still grow. A new player stands before the first signal and is paused.

    is_live: the run may continue, so the player waits at the end of the log instead of pausing there.
    gap_seconds_max: pauses between signals are played at most this long, before `speed` shortens them.
    """

    def __init__(
        self, signals: Iterable[Signal] = (), *, is_live: bool = False, speed: float = 1.0, gap_seconds_max: float = GAP_SECONDS_MAX
    ):  # fmt: skip
        self.is_live = is_live
        self.gap_seconds_max = gap_seconds_max
        self.speed = speed
        self._timeline = Timeline()
        self._cursor: int | None = None  # None: before the first signal
        self._checkpoints: dict[str, int] = {}
        self._played_at: float | None = None  # the time up to which the signals were played; None while paused
        self._latest = 0  # of the signals up to the cursor, in microseconds
        self.extend(signals)

    def extend(self, signals: Iterable[Signal]) -> int:
        """Add the next signals of the run; return how many. Raises InvalidInput: `other_run`, `log_gap`, and the errors of `check_json`."""
        return self._timeline.extend(signals)

    @property
    def log(self) -> SignalLog:
        return self._timeline.log

    @property
    def cursor(self) -> int:
        """The position of the last signal that was played; one less than that of the first signal at the start."""
        return self._first - 1 if self._cursor is None else self._cursor

    @property
    def signal(self) -> Signal | None:
        """The signal at the cursor; None at the start."""
        return self.log.signal(self.cursor) if self.cursor >= self._first else None

    @property
    def snapshot(self) -> Snapshot:
        """The situation of the run at the cursor."""
        return self._timeline.snapshot(self.cursor)

    @property
    def is_at_end(self) -> bool:
        return self.cursor == self.log.last_seq

    @property
    def is_playing(self) -> bool:
        return self._played_at is not None

    @property
    def speed(self) -> float:
        """How much faster than the run it plays: 0.01 to 1000. Raises InvalidInput (`out_of_range`) for another number."""
        return self._speed

    @speed.setter
    def speed(self, value: float) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float) or not SPEED_MIN <= value <= SPEED_MAX:
            raise InvalidInput(f"the speed must be a number from {SPEED_MIN:g} to {SPEED_MAX:g}, not {safe_repr(repr_of(value))}; "
                               "2 plays twice as fast as the run was", code="out_of_range", path="speed")  # fmt: skip
        self._speed = float(value)

    # ── Time ──

    def play(self, now: float) -> None:
        """Play from the cursor; at the end of a run that has ended, from the start. now: seconds of the clock that `tick` gets."""
        if self.is_at_end and not self.is_live:
            self.to_start()
        self._played_at = now

    def pause(self) -> None:
        self._played_at = None

    def tick(self, now: float) -> int:
        """Play the signals that are due by `now`; return how many. A tick plays at most 5,000, the next one continues."""
        if self._played_at is None:
            return 0
        played, last = 0, self.log.last_seq
        for seq, entry in self.log.entries(self.cursor, min(last, self.cursor + _PER_TICK_MAX)):
            due = self._played_at + self._pause_before(entry.at) / self._speed
            if due > now:
                break
            self._played_at, self._cursor, played = due, seq, played + 1
            self._latest = max(self._latest, entry.at)
        if self.is_at_end:
            # what a live run records next is due at once
            self._played_at = now - self.gap_seconds_max / self._speed if self.is_live else None
        return played

    def seconds_to_next(self, now: float) -> float | None:
        """Return the time until the next signal is due; None while paused, or if there is none yet."""
        if self._played_at is None or self.is_at_end:
            return None
        wait = self._pause_before(self.log.entry(self.cursor + 1).at) / self._speed
        return max(0.0, self._played_at + wait - now)

    def _pause_before(self, at: int) -> float:
        """The pause that is played before a signal. Clocks of workers differ, so one may seem earlier than the signal before it."""
        if self.cursor < self._first:
            return 0.0
        return min(max(at - self._latest, 0) / 1_000_000, self.gap_seconds_max)

    # ── Moves ──

    def step(self, count: int = 1) -> int:
        """Move forwards by up to `count` signals; return how many there were."""
        return self._move(min(self.cursor + _checked_count(count), self.log.last_seq))

    def back(self, count: int = 1) -> int:
        """Move backwards by up to `count` signals; return how many there were."""
        return -self._move(max(self.cursor - _checked_count(count), self._first - 1))

    def to_start(self) -> None:
        """Move before the first signal."""
        self._move(self._first - 1)

    def to_end(self) -> None:
        """Move to the newest signal."""
        self._move(self.log.last_seq)

    def seek(self, seq: int) -> None:
        """Move to a position; one less than the first one is the start.

        Raises InvalidInput (`wrong_type`, `seek_out_of_range`), and NotFound (`pruned_signal`) for a position whose signal was pruned.
        """
        if isinstance(seq, bool) or not isinstance(seq, int):
            raise InvalidInput(
                f"a position must be a whole number, not {safe_repr(repr_of(seq))}", code="wrong_type", path="seq"
            )
        if 0 < seq < self._first - 1:
            raise NotFound(f"position {seq} of run {self.log.run_id} was pruned; its log now begins with {self._first}",
                           code="pruned_signal")  # fmt: skip
        if seq < 0 or seq > self.log.last_seq:
            raise InvalidInput(f"{self._name} has no position {safe_repr(repr_of(seq))}; seek one from {self._first - 1}, before "
                               f"its first signal, to {self.log.last_seq}", code="seek_out_of_range", path="seq")  # fmt: skip
        self._move(max(seq, self._first - 1))

    def seek_signal(self, identifier: str) -> None:
        """Move to a signal by its id. Raises NotFound (`unknown_signal`, `pruned_signal`)."""
        self._move(self.log.find(identifier))

    def seek_time(self, moment: datetime) -> None:
        """Move to the last position up to which no signal is later than `moment`. Raises InvalidInput (`wrong_type`, `seek_out_of_range`)."""
        if not isinstance(moment, datetime) or moment.tzinfo is None:
            raise InvalidInput(f"a moment must be a datetime with a time zone, not {safe_repr(repr_of(moment))}", code="wrong_type",
                               path="moment")  # fmt: skip
        seq = self.log.at(moment)
        if seq < self._first or moment > self.log.latest_time:
            span = "it has no signals"
            if len(self.log):
                span = f"seek a time from {self.log.signal(self._first).timestamp} to {self.log.latest_time}"
            raise InvalidInput(f"{self._name} does not reach {moment}; {span}", code="seek_out_of_range", path="moment")
        self._move(seq)

    def next(self, pattern: str) -> Signal | None:
        """Move to the next signal whose name matches, and return it; without one, the cursor remains. Raises the errors of `compile_pattern`."""
        return self._move_to_match(self.log.next_match(compile_pattern(pattern), self.cursor))

    def previous(self, pattern: str) -> Signal | None:
        """Move to the last signal before the cursor whose name matches, and return it; without one, the cursor remains."""
        return self._move_to_match(self.log.previous_match(compile_pattern(pattern), self.cursor))

    # ── Checkpoints ──

    @property
    def checkpoints(self) -> Mapping[str, int]:
        """The positions that `set_checkpoint` has named, in the order in which they were named."""
        return MappingProxyType(self._checkpoints)

    def set_checkpoint(self, name: str) -> None:
        """Name the cursor, to return to it. A second call with the same name moves it. Raises InvalidInput (`invalid_checkpoint`)."""
        if not isinstance(name, str) or not 0 < len(name) <= _NAME_MAX or not name.isprintable():
            raise InvalidInput(f"the name of a checkpoint must be 1 to {_NAME_MAX} printable characters, not "
                               f"{safe_repr(repr_of(name))}", code="invalid_checkpoint", path="name")  # fmt: skip
        if len(self._checkpoints) >= _CHECKPOINTS_MAX and name not in self._checkpoints:
            raise InvalidInput(f"a player has at most {_CHECKPOINTS_MAX} checkpoints; use one of their names again",
                               code="invalid_checkpoint", path="name")  # fmt: skip
        self._checkpoints[name] = self.cursor

    def to_checkpoint(self, name: str) -> None:
        """Move to a checkpoint. Raises NotFound (`unknown_checkpoint`)."""
        if name not in self._checkpoints:
            known = ", ".join(list(self._checkpoints)[:20]) or "none yet: set_checkpoint makes one"
            raise NotFound(f"no checkpoint is named {safe_repr(repr_of(name))}; the checkpoints are {safe_repr(known, 300)}",
                           code="unknown_checkpoint")  # fmt: skip
        self._move(self._checkpoints[name])

    @property
    def _first(self) -> int:
        return self.log.first_seq

    @property
    def _name(self) -> str:
        return f"the log of run {self.log.run_id}" if len(self.log) else "the log, which is empty,"

    def _move_to_match(self, seq: int | None) -> Signal | None:
        if seq is None:
            return None
        self._move(seq)
        return self.signal

    def _move(self, seq: int) -> int:
        """Move the cursor; return by how many signals. Playing continues from there."""
        moved = seq - self.cursor
        self._cursor = seq if seq >= self._first else None
        self._latest = self.log.entry(seq).at if seq >= self._first else 0
        return moved


def _checked_count(count: int) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise InvalidInput(f"the number of signals must be a whole number from 1, not {safe_repr(repr_of(count))}", code="out_of_range",
                           path="count")  # fmt: skip
    return count
