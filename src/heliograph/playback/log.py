"""The log of one run in memory, compact, for a player: signals as JSON in blocks, decoded when they are read.

The log of a fork begins with signals of the runs whose logs it shares, under their ids. So each part of a log has the id of its run.

A decoded signal takes several times the memory of its JSON, and a fold of the log reads it once, block by block. What follows from
the run and the position is not stored: the id, and the run of the parent. So a signal with a small payload takes about a hundred bytes.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any, ClassVar, TypeAlias

import msgspec

from heliograph.error_text import repr_of, safe_repr
from heliograph.errors import InvalidInput, NotFound
from heliograph.ids import signal_id, split_signal_id
from heliograph.signals.model import Signal, Source
from heliograph.signals.pattern import Pattern
from heliograph.signals.payload import DEPTH_MAX, check_json
from heliograph.signals.state_change import PREFIX, is_partial

BLOCK = 512  # signals; the index of names has one entry per block and name
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
SEQ_MAX = 2**53
_DELTA_KEYS = {"content", "offset"}
FORKED = "workflow:forked"  # the first own signal of a fork

Parent: TypeAlias = int | str | None


class OtherEntry(msgspec.Struct, array_like=True, gc=False, tag=0):
    """A signal as a fold reads it. parent: the position of a signal of the same run, or the id of another one."""

    kind: ClassVar[int] = 0
    name: str
    agent: str | None
    parent: Parent
    payload: Any


class DeltaEntry(msgspec.Struct, array_like=True, gc=False):
    """A piece of a streamed text. Most of a log is such pieces, so they are stored without a name and the keys of the payload."""

    kind: ClassVar[int]
    name: ClassVar[str]
    agent: str | None
    parent: Parent
    content: str


class TextDelta(DeltaEntry, tag=1):
    kind = 1
    name = "text:delta"


class ThinkingDelta(DeltaEntry, tag=2):
    kind = 2
    name = "thinking:delta"


# The whole entries, as they are stored. at: microseconds. A decoder of the classes above skips what they add.
class StoredOther(OtherEntry, tag=0):
    at: int
    turn_id: str | None


def _payload_of_delta(entry: Any) -> Any:
    return {"content": entry.content, "offset": entry.offset}


class StoredTextDelta(TextDelta, tag=1):
    offset: int
    at: int
    turn_id: str | None

    payload = property(_payload_of_delta)


class StoredThinkingDelta(ThinkingDelta, tag=2):
    offset: int
    at: int
    turn_id: str | None

    payload = property(_payload_of_delta)


Entry: TypeAlias = OtherEntry | TextDelta | ThinkingDelta
StoredEntry: TypeAlias = StoredOther | StoredTextDelta | StoredThinkingDelta
_DELTAS: dict[str, type[StoredTextDelta | StoredThinkingDelta]] = {
    each.name: each for each in (StoredTextDelta, StoredThinkingDelta)
}
_ENCODER = msgspec.json.Encoder()
_ENTRY: msgspec.json.Decoder[StoredEntry] = msgspec.json.Decoder(StoredEntry)
_STORED: msgspec.json.Decoder[list[StoredEntry]] = msgspec.json.Decoder(list[StoredEntry])
_FOLDED: msgspec.json.Decoder[list[Entry]] = msgspec.json.Decoder(list[Entry])


class SignalLog:
    """The signals of one run, in order and without gaps. A log whose front was pruned begins after 1."""

    def __init__(self) -> None:
        self.first_seq = 1
        self._parts: list[int] = []  # the first position of each part
        self._runs: list[str] = []  # the run that recorded it
        self._blocks: list[bytearray] = []  # a JSON array of entries; the last block ends with a comma until it is full
        self._ends: list[array[int]] = []  # of the entries of each block
        self._latest: list[int] = []  # the latest time up to the end of each block
        self._blocks_of: dict[str, array[int]] = {}  # by name: the numbers of the blocks that contain it
        self._last_changes: dict[str, int] = {}  # by name: the position of the newest change of a key of the state
        # by the position of a change that has a part of a list: the position of the change before it, or 0
        self._continued: dict[int, int] = {}
        self._size = 0
        self._bytes = 0

    def __len__(self) -> int:
        return self._size

    @property
    def run_id(self) -> str:
        """The run to which the log belongs, as far as it is known: of a fork, after its first own signal."""
        return self._runs[-1] if self._runs else ""

    @property
    def last_seq(self) -> int:
        """The position of the newest signal; one less than `first_seq` for an empty log."""
        return self.first_seq + self._size - 1

    @property
    def byte_count(self) -> int:
        """The size of the stored signals."""
        return self._bytes

    @property
    def latest_time(self) -> datetime:
        """The latest time of a signal; the beginning of 1970 for an empty log."""
        return _EPOCH + (self._latest[-1] if self._latest else 0) * _MICROSECOND

    def append(self, signal: Signal) -> StoredEntry:
        """Add the next signal. Raises InvalidInput: `other_run`, `log_gap`, and the errors of `check_json`."""
        self._check_place(signal)
        entry = _entry_of(signal, self._short(signal))
        raw = _encoded(entry)
        if signal.run_id != self.run_id:
            self._parts.append(signal.seq)
            self._runs.append(signal.run_id)
        if not self._blocks or len(self._ends[-1]) == BLOCK:
            self._blocks.append(bytearray(b"["))
            self._ends.append(array("I"))
            self._latest.append(self._latest[-1] if self._latest else entry.at)
        block = self._blocks[-1]
        block += raw
        self._ends[-1].append(len(block))
        block += b"]" if len(self._ends[-1]) == BLOCK else b","
        self._bytes += len(raw) + 1
        self._latest[-1] = max(self._latest[-1], entry.at)
        self._index(entry.name, len(self._blocks) - 1)
        self._size += 1
        if isinstance(entry, StoredOther) and entry.name.startswith(PREFIX):
            self._index_change(entry)
        return entry

    def change_before(self, seq: int) -> int | None:
        """The position of the change that a partial change of a value continues: 0 if the log has none. None for a whole value."""
        return self._continued.get(seq)

    def entry(self, seq: int) -> StoredEntry:
        """Return the entry at a position that the log has."""
        block, place = divmod(seq - self.first_seq, BLOCK)
        ends = self._ends[block]
        return _ENTRY.decode(memoryview(self._blocks[block])[_start(ends, place) : ends[place]])

    def batches(self, after: int, until: int) -> Iterator[list[Entry]]:
        """Yield the entries after one position and up to another, in lists of at most a block, as a fold reads them."""
        return map(_FOLDED.decode, self._arrays(after, until))

    def entries(self, after: int, until: int) -> Iterator[tuple[int, StoredEntry]]:
        """Yield the entries after one position and up to another, each with its position."""
        batches = map(_STORED.decode, self._arrays(after, until))
        return enumerate(chain.from_iterable(batches), max(after + 1, self.first_seq))

    def _arrays(self, after: int, until: int) -> Iterator[bytes | bytearray]:
        """The JSON of the entries after one position and up to another, in arrays of at most a block."""
        seq = max(after + 1, self.first_seq)
        until = min(until, self.last_seq)
        while seq <= until:
            block, place = divmod(seq - self.first_seq, BLOCK)
            raw, ends = self._blocks[block], self._ends[block]
            stop = min(place + until - seq + 1, len(ends))
            whole = stop - place == BLOCK
            yield raw if whole else b"[%b]" % bytes(memoryview(raw)[_start(ends, place) : ends[stop - 1]])
            seq += stop - place

    def signal(self, seq: int) -> Signal:
        """Return the signal at a position. Raises NotFound (`unknown_signal`) for a position that the log does not have."""
        if not self.first_seq <= seq <= self.last_seq:
            raise NotFound(f"the log of run {self.run_id} has no position {safe_repr(repr_of(seq))}; it has those from {self.first_seq} to "
                           f"{self.last_seq}", code="unknown_signal")  # fmt: skip
        return self._signal(seq, self.entry(seq))

    def signals(self, after: int, until: int) -> list[Signal]:
        """Return the signals after one position and up to another."""
        return [self._signal(seq, entry) for seq, entry in self.entries(after, until)]

    def id_of(self, parent: Parent) -> str | None:
        """Return the id that an entry's `parent` stands for."""
        return signal_id(self._run_at(parent), parent) if isinstance(parent, int) else parent

    def find(self, identifier: str) -> int:
        """Return the position of a signal by its id. Raises NotFound (`unknown_signal`, `pruned_signal`)."""
        run, seq = split_signal_id(identifier) or ("", 0)
        if run in self._runs and 0 < seq < self.first_seq:
            raise NotFound(f"signal {safe_repr(identifier)} was pruned; the log of run {self.run_id} now begins with "
                           f"{self.id_of(self.first_seq)}", code="pruned_signal")  # fmt: skip
        if not self.first_seq <= seq <= self.last_seq or self._run_at(seq) != run:
            raise NotFound(f"the log of run {self.run_id} has no signal {safe_repr(identifier)}; its newest one is "
                           f"{self.id_of(self.last_seq) if self._size else '-'}", code="unknown_signal")  # fmt: skip
        return seq

    def at(self, moment: datetime) -> int:
        """Return the last position up to which no signal is later than `moment`; one less than `first_seq` if the first one is.

        Clocks of workers differ, so times are not always in the order of the log.
        """
        at = (moment - _EPOCH) // _MICROSECOND
        block = bisect_right(self._latest, at)
        seq = self.first_seq + min(block * BLOCK, self._size) - 1
        for position, entry in self.entries(seq, seq + BLOCK):
            if entry.at > at:
                break
            seq = position
        return seq

    def next_match(self, pattern: Pattern, after: int) -> int | None:
        """Return the position of the first signal after `after` whose name matches; None if there is none."""
        first = max(after + 1 - self.first_seq, 0) // BLOCK
        for block in self._matching_blocks(pattern, first, len(self._blocks)):
            for seq, entry in self.entries(max(after, self._before(block)), self._before(block + 1)):
                if pattern.matches(entry.name):
                    return seq
        return None

    def previous_match(self, pattern: Pattern, before: int) -> int | None:
        """Return the position of the last signal before `before` whose name matches; None if there is none."""
        last = max(before - 1 - self.first_seq, -1) // BLOCK
        for block in reversed(self._matching_blocks(pattern, 0, last + 1)):
            found = [
                seq
                for seq, entry in self.entries(self._before(block), min(before - 1, self._before(block + 1)))
                if pattern.matches(entry.name)
            ]
            if found:
                return found[-1]
        return None

    def _before(self, block: int) -> int:
        """The position before the first signal of a block."""
        return self.first_seq + block * BLOCK - 1

    def _matching_blocks(self, pattern: Pattern, first: int, stop: int) -> list[int]:
        """The numbers of the blocks from `first` up to `stop` that have a matching name, in order."""
        found: set[int] = set()
        for name, blocks in self._blocks_of.items():
            if pattern.matches(name):
                found.update(blocks[bisect_left(blocks, first) : bisect_left(blocks, stop)])
        return sorted(found)

    def _index(self, name: str, block: int) -> None:
        blocks = self._blocks_of.get(name)
        if blocks is None:
            self._blocks_of[name] = array("I", (block,))
        elif blocks[-1] != block:
            blocks.append(block)

    def _index_change(self, entry: StoredOther) -> None:
        if is_partial(entry.payload):
            self._continued[self.last_seq] = self._last_changes.get(entry.name, 0)
        self._last_changes[entry.name] = self.last_seq

    def _check_place(self, signal: Signal) -> None:
        if not self._size:
            if not 0 < signal.seq <= SEQ_MAX:
                raise InvalidInput(f"signal {safe_repr(signal.id)} has the position {signal.seq}; positions begin with 1",
                                   code="log_gap", path="seq")  # fmt: skip
            self.first_seq = signal.seq
        if signal.seq != self.last_seq + 1:
            raise InvalidInput(f"signal {safe_repr(signal.id)} follows position {self.last_seq} of run {safe_repr(self.run_id)}; "
                               "a log has all signals in order, so read it again from its start", code="log_gap", path="seq")  # fmt: skip
        is_other = bool(self._runs) and signal.run_id != self.run_id
        if signal.id != signal_id(signal.run_id, signal.seq) or (is_other and signal.name != FORKED):
            raise InvalidInput(f"signal {safe_repr(signal.id)} at position {signal.seq} is not one of run {safe_repr(self.run_id)}, "
                               "and begins no fork of it; a log has the signals of one run", code="other_run", path="id")  # fmt: skip

    def _run_at(self, seq: int) -> str:
        """The run that recorded the signal at a position; of a pruned one, that of the first signal that is left."""
        return self._runs[max(bisect_right(self._parts, seq) - 1, 0)]

    def _short(self, signal: Signal) -> Parent:
        """The parent of the next signal by its position, if it is in this log, or was in its front that is pruned."""
        parent = signal.parent
        run, seq = (None if parent is None else split_signal_id(parent)) or ("", 0)
        if (
            0 < seq < signal.seq
            and run == (self._run_at(seq) if self._runs else signal.run_id)
            and parent == signal_id(run, seq)
        ):
            return seq
        return parent

    def _signal(self, seq: int, entry: StoredEntry) -> Signal:
        parent = self.id_of(entry.parent)
        source = Source(entry.agent, parent) if entry.agent is not None or parent is not None else None
        run = self._run_at(seq)
        return Signal(signal_id(run, seq), entry.name, entry.payload, _EPOCH + entry.at * _MICROSECOND, source, run, seq,
                      entry.turn_id)  # fmt: skip


def _start(ends: array[int], place: int) -> int:
    """Where an entry begins in its block: after the bracket, or after the comma that follows the entry before it."""
    return ends[place - 1] + 1 if place else 1


def _entry_of(signal: Signal, parent: Parent) -> StoredEntry:
    name, payload, at = signal.name, signal.payload, (signal.timestamp - _EPOCH) // _MICROSECOND
    delta = _DELTAS.get(name)
    if delta is not None and isinstance(payload, dict) and payload.keys() == _DELTA_KEYS:
        content, offset = payload["content"], payload["offset"]
        if type(content) is str and type(offset) is int and abs(offset) <= SEQ_MAX:
            return delta(signal.agent, parent, content, offset, at, signal.turn_id)
    return StoredOther(name, signal.agent, parent, payload, at, signal.turn_id)


def _encoded(entry: StoredEntry) -> bytes:
    try:
        raw = _ENCODER.encode(entry)
    except (TypeError, ValueError, RecursionError):
        check_json(entry.payload, "/payload")
        raise
    if raw.count(b"[") + raw.count(b"{") > DEPTH_MAX:  # otherwise it is too shallow to exhaust a decoder's stack
        check_json(entry.payload, "/payload")
    return raw
