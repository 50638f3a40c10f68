"""Rate limits: how many calls a token bucket starts, and whether each effect has a token. A model of its own.

Callers act in steps, as transactions and workers do: lock the bucket, read it and take a token, commit; wait for the start; have the
effect; record it. Any other caller may act in between, and any of them may die. Time moves in ticks, one token each.

T1: a caller locks the bucket before it reads it. Without: two calls share a start, and a window has one start too many.
T2: a call that begins again takes a token again. Without: the effects of two owners share one token.
T3: the effect waits for the start. Without: an effect comes before its token.
T4: a rejected call takes no token. Without: a bucket counts a token that nobody uses.
T5: a reset, after which the bucket is at worst empty, counts from the latest start of the calls that started or may still start, not
from now. Without: a window has one start too many.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from model.checker import FAULT, SYSTEM, Transition

COUNT = 2  # the size of the bucket; it fills by one token in a tick
PATIENCE = 1  # ticks that a call waits for its start
FREE_TICKS = 2  # that pass although no caller waits
TOO_MANY = "a window has more starts than a full bucket and its refill"
SHARED = "an effect has no token of its own"
EARLY = "an effect comes before its start"
WASTED = "a bucket counts a token that no call has"


@dataclass(frozen=True, slots=True)
class BucketRules:
    lock_first: bool = True  # T1
    again_takes: bool = True  # T2
    waits_for_start: bool = True  # T3
    rejected_free: bool = True  # T4
    reset_after_starts: bool = True  # T5


class Caller(NamedTuple):
    """doing: idle, takes (it has read the bucket), waits, has acted (its effect is not recorded), dead, over.

    start: of its token, or the one that it is about to take. tokens, effects: how many it has had.
    """

    doing: str = "idle"
    start: int = -1
    tokens: int = 0
    effects: int = 0


class State(NamedTuple):
    """full_at: when the bucket is full. starts: of the tokens with which calls started or may still start, in order.

    lock: the caller that has it; -1: nobody.
    """

    now: int
    full_at: int
    starts: tuple[int, ...]
    lock: int
    callers: tuple[Caller, ...]
    crashes: int
    is_wasted: bool = False


Step = Transition[State]


class BucketModel:
    """`checker.Model` of some callers of one bucket, each with one call."""

    def __init__(self, rules: BucketRules | None = None, callers: int = 4, crashes: int = 1) -> None:
        self.rules = BucketRules() if rules is None else rules
        self.count = callers
        self.crashes = crashes

    def initial(self) -> State:
        return State(0, 0, (), -1, (Caller(),) * self.count, self.crashes)

    def key(self, state: State) -> Hashable:
        """The state without the names of the callers."""
        callers = sorted((*caller, state.lock == i) for i, caller in enumerate(state.callers))
        return (state.now, state.full_at, state.starts, tuple(callers), state.crashes, state.is_wasted)

    def successors(self, s: State) -> Iterator[Step]:
        for i, caller in enumerate(s.callers):
            if caller.doing == "idle" and (s.lock == -1 or not self.rules.lock_first):
                yield self._read(s, i)
            elif caller.doing == "takes":
                yield self._take(s, i)
            if caller.doing == "waits" and caller.start > s.now:
                yield self._stop(s, i)
            if caller.doing == "waits" and (s.now >= caller.start or not self.rules.waits_for_start):
                yield self._act(s, i)
            elif caller.doing == "has acted":
                yield f"c{i}: records its result", SYSTEM, _caller(s, i, caller._replace(doing="over")), ()
            elif caller.doing == "dead":
                is_paid = self.rules.again_takes or caller.tokens == 0
                again = _caller(s, i, caller._replace(doing="idle" if is_paid else "waits"))
                again = _without_future_start(again, caller) if is_paid else again
                yield f"c{i}: another worker begins it again", SYSTEM, again, ()
            if caller.doing in ("takes", "waits", "has acted") and s.crashes:
                start = -1 if caller.doing == "takes" else caller.start
                dead = _unlock(_caller(s, i, caller._replace(doing="dead", start=start)), i)
                yield f"c{i}: dies", FAULT, dead._replace(crashes=s.crashes - 1), ()
        if s.now < FREE_TICKS or any(caller.doing == "waits" and caller.start > s.now for caller in s.callers):
            yield "a tick passes", SYSTEM, s._replace(now=s.now + 1), ()
        latest = max((s.now, *s.starts)) if self.rules.reset_after_starts else s.now
        if s.lock == -1 and s.full_at > latest + COUNT:
            yield "an operator resets the bucket", SYSTEM, s._replace(full_at=latest + COUNT), ()

    def _stop(self, s: State, i: int) -> Step:
        """Somebody stops a call that waits for its start."""
        stopped = _caller(s, i, s.callers[i]._replace(doing="over"))
        return f"c{i}: stopped before its start", SYSTEM, _without_future_start(stopped, s.callers[i]), ()

    def _read(self, s: State, i: int) -> Step:
        """Lock the bucket, read it, and compute the start of a token."""
        start = max(s.now, s.full_at + 1 - COUNT)
        caller = s.callers[i]
        if start > s.now + PATIENCE:
            full_at = s.full_at if self.rules.rejected_free else s.full_at + 1
            rejected = _caller(s, i, caller._replace(doing="over"))
            return f"c{i}: rejected", SYSTEM, rejected._replace(full_at=full_at, is_wasted=full_at != s.full_at), ()
        taking = _caller(s, i, caller._replace(doing="takes", start=start))
        return f"c{i}: reads the bucket", SYSTEM, taking._replace(lock=i if s.lock == -1 else s.lock), ()

    def _take(self, s: State, i: int) -> Step:
        """Commit. PostgreSQL updates the newest row, whatever was read before."""
        caller = s.callers[i]
        taken = _unlock(_caller(s, i, caller._replace(doing="waits", tokens=caller.tokens + 1)), i)
        starts = tuple(sorted((*s.starts, caller.start)))
        label = f"c{i}: takes a token for {caller.start}"
        return label, SYSTEM, taken._replace(full_at=max(s.full_at, caller.start) + 1, starts=starts), ()

    def _act(self, s: State, i: int) -> Step:
        caller = s.callers[i]
        acted = caller._replace(doing="has acted", effects=caller.effects + 1)
        broken = [SHARED] if acted.effects > acted.tokens else []
        broken += [EARLY] if s.now < caller.start else []
        return f"c{i}: has its effect", SYSTEM, _caller(s, i, acted), tuple(broken)

    def broken(self, s: State) -> tuple[str, ...]:
        found = [TOO_MANY] if _most_over(s.starts) > 0 else []
        return (*found, *([WASTED] if s.is_wasted else []))

    def is_quiet(self, s: State) -> bool:
        return all(caller.doing == "over" for caller in s.callers)

    def is_abandoned(self, s: State) -> bool:
        return False

    is_settled = is_quiet


def _most_over(starts: tuple[int, ...]) -> int:
    """By how many starts the worst window exceeds a full bucket and its refill."""
    return max(
        (n - m + 1 - COUNT - (at - first) for n, at in enumerate(starts) for m, first in enumerate(starts[: n + 1])),
        default=0,
    )


def _without_future_start(s: State, caller: Caller) -> State:
    """The state without the token of a call that will not start with it."""
    if caller.start <= s.now:
        return s
    at = s.starts.index(caller.start)
    return s._replace(starts=s.starts[:at] + s.starts[at + 1 :])


def _unlock(s: State, i: int) -> State:
    return s._replace(lock=-1) if s.lock == i else s


def _caller(s: State, i: int, caller: Caller) -> State:
    return s._replace(callers=(*s.callers[:i], caller, *s.callers[i + 1 :]))
