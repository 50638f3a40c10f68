"""Circuit breakers: how many trials a half-open one admits, and whether it always leaves that state. A model of its own.

Callers decide in steps, as transactions do: read the breaker, try its lock, look again, write the trial and commit. Another
caller may do anything in between, and any of them may die. The trial of a dead caller ends at its deadline. The lock is
never waited for (14_circuit_breakers.sql), so no order of locks is needed.

B1: under the lock a caller reads the breaker and its trials anew. Without: one trial more than allowed.
B2: a caller that does not get the lock is rejected. Without (it goes on as if it had the lock): the same.
B3: a trial without a result ends at its deadline. Without: the breaker of a caller that died never leaves half open.
B4: a result counts only in the generation that admitted its call. Without: a call that the closed breaker admitted closes
the half-open one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from model.checker import FAULT, SYSTEM, WATCHDOG, Transition

OPEN, HALF_OPEN, CLOSED = "open", "half open", "closed"
TRIALS_MAX, NEEDED = 2, 1
TOO_MANY = "a half-open breaker admits one trial too many"
LATE = "a result counts in a later state of its breaker"


@dataclass(frozen=True, slots=True)
class BreakerRules:
    read_again: bool = True  # B1
    lock_needed: bool = True  # B2
    trials_end: bool = True  # B3
    by_generation: bool = True  # B4


class Caller(NamedTuple):
    """doing: idle, has read, decides (it has the lock), calls, or dead. seen: the free trials that it has read."""

    doing: str = "idle"
    seen: int = 0
    generation: int = -1  # of its call; -1: none


class State(NamedTuple):
    """trials: under way, by caller. admitted, succeeded, failed: of this generation. lock: the caller that has it; -1: nobody."""

    state: str
    generation: int
    admitted: int
    succeeded: int
    failed: int
    trials: tuple[bool, ...]
    lock: int
    callers: tuple[Caller, ...]
    crashes: int


Step = Transition[State]


class BreakerModel:
    """`checker.Model` of some callers of one breaker. The first caller has a call that the closed breaker admitted."""

    def __init__(self, rules: BreakerRules | None = None, callers: int = 4, crashes: int = 2) -> None:
        self.rules = BreakerRules() if rules is None else rules
        self.count = callers
        self.crashes = crashes

    def initial(self) -> State:
        callers = (Caller("calls", 0, 0), *(Caller(),) * (self.count - 1))
        return State(OPEN, 1, 0, 0, 0, (False,) * self.count, -1, callers, self.crashes)

    def key(self, state: State) -> Hashable:
        """The state without the height of the generation, which only rises, and without the names of the callers."""
        callers = sorted(
            (caller.doing, caller.seen, caller.generation == state.generation, state.trials[i], state.lock == i)
            for i, caller in enumerate(state.callers)
        )
        return (state.state, state.admitted, state.succeeded, state.failed, tuple(callers), state.crashes)

    def successors(self, s: State) -> Iterator[Step]:
        for i, caller in enumerate(s.callers):
            if caller.doing == "idle" and s.state != CLOSED:
                yield f"c{i}: reads the breaker", SYSTEM, _caller(s, i, Caller("has read", _free(s))), ()
            elif caller.doing == "has read":
                yield self._lock(s, i)
            elif caller.doing == "decides":
                yield self._write(s, i)
            elif caller.doing == "calls":
                yield self._end(s, i, is_good=True)
                yield self._end(s, i, is_good=False)
            if caller.doing in ("decides", "calls") and s.crashes:
                dead = _caller(s, i, caller._replace(doing="dead"))
                yield f"c{i}: dies", FAULT, _unlock(dead, i)._replace(crashes=s.crashes - 1), ()
            if s.trials[i] and caller.doing == "dead" and self.rules.trials_end:
                ended = _trial(s, i, is_there=False)._replace(failed=s.failed + 1)
                yield f"c{i}: its trial ends at its deadline", WATCHDOG, ended, ()

    def _lock(self, s: State, i: int) -> Step:
        """Try the lock; under it, move the breaker on, and look again."""
        if s.lock != -1 and self.rules.lock_needed:
            return f"c{i}: another one decides, rejected", SYSTEM, _caller(s, i, Caller()), ()
        s = s._replace(lock=i if s.lock == -1 else s.lock)
        if s.state == HALF_OPEN and s.succeeded >= NEEDED:
            s = s._replace(state=CLOSED, generation=s.generation + 1, trials=(False,) * self.count)
        elif s.state == OPEN or (s.state == HALF_OPEN and s.failed > TRIALS_MAX - NEEDED):  # and its time is over
            s = State(HALF_OPEN, s.generation + 1, 0, 0, 0, (False,) * self.count, s.lock, s.callers, s.crashes)
        free = _free(s) if self.rules.read_again else s.callers[i].seen
        return f"c{i}: locks", SYSTEM, _caller(s, i, Caller("decides", free)), ()

    def _write(self, s: State, i: int) -> Step:
        free = s.callers[i].seen
        s = _unlock(s, i)
        if s.state == CLOSED or free <= 0:
            return f"c{i}: closed, or rejected", SYSTEM, _caller(s, i, Caller()), ()
        broken = (TOO_MANY,) if s.admitted >= TRIALS_MAX else ()
        s = _trial(_caller(s, i, Caller("calls", 0, s.generation)), i, is_there=True)
        return f"c{i}: writes its trial", SYSTEM, s._replace(admitted=min(s.admitted + 1, TRIALS_MAX + 1)), broken

    def _end(self, s: State, i: int, *, is_good: bool) -> Step:
        is_old = s.callers[i].generation != s.generation
        label = f"c{i}: {'success' if is_good else 'failure'}" + (" of an earlier state" if is_old else "")
        s = _caller(s, i, Caller())
        if s.state != HALF_OPEN or (is_old and self.rules.by_generation):
            return label, SYSTEM, s, ()
        s = _trial(s, i, is_there=False)
        s = s._replace(
            succeeded=min(s.succeeded + is_good, TRIALS_MAX), failed=min(s.failed + (not is_good), TRIALS_MAX)
        )
        return label, SYSTEM, s, (LATE,) if is_old else ()

    def broken(self, s: State) -> tuple[str, ...]:
        return (TOO_MANY,) if s.state == HALF_OPEN and sum(s.trials) > TRIALS_MAX else ()

    def is_quiet(self, s: State) -> bool:
        """The next caller is admitted, or the one after it: the breaker is not half open, or has room, or is decided."""
        is_decided = s.succeeded >= NEEDED or s.failed > TRIALS_MAX - NEEDED
        return s.state != HALF_OPEN or is_decided or s.admitted < TRIALS_MAX

    def is_abandoned(self, s: State) -> bool:
        return False

    is_settled = is_quiet


def _free(s: State) -> int:
    return TRIALS_MAX - s.admitted if s.state == HALF_OPEN else TRIALS_MAX


def _unlock(s: State, i: int) -> State:
    return s._replace(lock=-1) if s.lock == i else s


def _caller(s: State, i: int, caller: Caller) -> State:
    return s._replace(callers=(*s.callers[:i], caller, *s.callers[i + 1 :]))


def _trial(s: State, i: int, *, is_there: bool) -> State:
    return s._replace(trials=(*s.trials[:i], is_there, *s.trials[i + 1 :]))
