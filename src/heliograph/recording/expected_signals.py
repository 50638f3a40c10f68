"""The signals of one turn in the log, and which of them its code has emitted again."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from heliograph.signals.guard_record import GUARD_PLACE
from heliograph.signals.model import Signal

DELTAS = frozenset(("text:delta", "thinking:delta"))
# How many they are depends on the time that the work took, or steps emit them, which a replay does not run.
UNCOMPARED = DELTAS | {"agent:progress"}
CAUSED = ("agent:activated", "agent:skipped")  # a reaction decides by which signal
_OF_CALLS = frozenset(("tool:call", "tool:result", "delegation", "delegation_response"))
# Paths whose values come from the clock, from new ids, or from the machine.
_OUTSIDE: Mapping[str, Collection[str]] = {
    "harness:end": ("/payload/durationMs",), "delegation": ("/payload/task_id",), "delegation_response": ("/payload/task_id",),
    "workflow:end": ("/payload/metrics/duration_ms", "/payload/metrics/usage"), "ready": ("/payload/metadata/runtime",),
    "harness:error": ("/payload/error", "/payload/message", "/payload/details"), "agent:skipped": (GUARD_PLACE,),
}  # fmt: skip

_Key = tuple[str, str | None, str | None]


class ExpectedSignals:
    """The signals of one turn, by what they belong to: calls that run at the same time emit theirs in any order."""

    def __init__(self, signals: Iterable[Signal], from_outside: Collection[str], not_admitted: Collection[str] = ()):
        """from_outside: the ids of the calls whose results the turn itself does not log. not_admitted: of those that a limit rejected; a
        replay finds their rejections as results, and does not log them again."""
        self.all = [s for s in signals if not _is_reported(s, from_outside)
                    and not (s.name in ("tool:call", "tool:result") and _id_of(s.payload) in not_admitted)]  # fmt: skip
        self._left: dict[_Key, deque[Signal]] = defaultdict(deque)
        for signal in self.all:
            self._left[_key(signal.name, signal.agent, signal.payload)].append(signal)
        self.taken: dict[int, Signal] = {}

    def take(self, name: str, agent: str | None, payload: Any) -> Signal | None:
        """The signal of the log with which a draft is compared; None if the log has no further one."""
        left = self._left[_key(name, agent, payload)]
        if not left:
            return None
        signal = left.popleft()
        self.taken[signal.seq] = signal
        return signal

    def has_result(self, call_id: str) -> bool:
        """Whether the turn itself has logged the result of a call."""
        return any(s.name == "tool:result" and _id_of(s.payload) == call_id for s in self.all)

    def commit_before(self, end: Signal, most: int) -> int:
        """The first position of the commit with `end`, which has at most `most` signals before it: no other turn is between them."""
        place, seqs = end.seq, {s.seq for s in self.all}
        while place - 1 in seqs and end.seq - place < most:
            place -= 1
        return place

    @property
    def next_seq(self) -> int:
        """The position of the first signal that is not taken yet, or of the last one."""
        left = [s.seq for s in self.all if s.seq not in self.taken and s.name not in UNCOMPARED]
        return left[0] if left else self.all[-1].seq if self.all else 1

    @property
    def missing(self) -> Signal | None:
        """The first signal that the code has not emitted again."""
        return next((s for s in self.all if s.seq not in self.taken and s.name not in UNCOMPARED), None)

    @property
    def reproduced(self) -> dict[int, Signal]:
        """The signals that the code has emitted again, with the deltas of its replies."""
        ids = {s.id for s in self.taken.values() if s.name == "harness:start"}
        return self.taken | {s.seq: s for s in self.all if s.name in DELTAS and s.parent in ids}


def is_outside(name: str, path: str) -> bool:
    """Whether a value of a signal comes from the clock, from new ids, or from the machine."""
    return any(path == each or path.startswith(f"{each}/") for each in _OUTSIDE.get(name, ()))


def _is_reported(signal: Signal, from_outside: Collection[str]) -> bool:
    """Whether a signal came with a report, or from the turn of a delegation."""
    payload: Any = signal.payload
    if signal.name == "delegation_response":
        return bool(payload.get("status") != "in_progress")
    return signal.name == "tool:result" and (
        "card_id" in payload or _id_of(payload) in from_outside
    )  # the kernel names the card


def _key(name: str, agent: str | None, payload: Any) -> _Key:
    """What identifies a signal among those of its turn. A guard that decides otherwise gives another name to the same signal."""
    kind = "agent:activated" if name == "agent:skipped" else name
    return kind, agent, _id_of(payload) if name in _OF_CALLS else None


def _id_of(payload: Any) -> str | None:
    found = payload.get("id") if isinstance(payload, dict) else None
    return found if isinstance(found, str) else None
