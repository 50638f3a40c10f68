"""What is explored: the shape of a configuration, and the configurations. The ablations are in `ablations.py`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cached_property

from model.rules import Rules


class Fault(IntEnum):
    """Indexes of the fault budget."""

    CRASH = 0  # a worker (or half-done handler) forgets everything
    LOSE = 1  # a doorbell is lost
    DUPLICATE = 2  # a command or a report arrives twice
    REAP = 3  # the lease of a live worker is taken away
    STOP = 4  # a user stops a turn
    AMBIGUOUS = 5  # a commit happened, its reply is lost, the caller retries
    SILENT = 6  # a tool never answers


def faults(
    crash: int = 0, lose: int = 0, dup: int = 0, reap: int = 0, stop: int = 0, amb: int = 0, silent: int = 0
) -> tuple[int, ...]:
    """A budget: how often each `Fault` may happen on one path."""
    return (crash, lose, dup, reap, stop, amb, silent)


@dataclass(frozen=True, slots=True)
class Await:
    """A step that suspends on these calls, in parallel."""

    calls: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Inline:
    """A step that makes one side effect inside the worker."""

    calls: tuple[int]


@dataclass(frozen=True)
class Config:
    """One model: who is there, what the turns do, which faults may happen how often, which rules hold.

    `agents[t]` is the agent of turn t, `scripts[t]` its steps. A run exists when `starts` is not empty: one transaction
    starts it with those turns, `wakes` are the reactions (turn, mask of the endings that it needs), `joins` are
    turns that a client enqueues into the run later.
    """

    name: str
    about: str
    agents: tuple[int, ...]
    scripts: tuple[tuple[Await | Inline, ...], ...]
    calls: int = 0
    workers: int = 2
    recoveries_max: int = 1
    faults: tuple[int, ...] = faults()
    is_streaming: bool = False
    is_deduped: bool = False
    is_symmetric: bool = True
    starts: tuple[int, ...] = ()
    wakes: tuple[tuple[int, int], ...] = ()
    joins: tuple[int, ...] = ()
    rules: Rules = field(default_factory=Rules)

    @cached_property
    def turns_of(self) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(t for t, owner in enumerate(self.agents) if owner == a) for a in range(max(self.agents) + 1))

    def call(self, t: int, k: int) -> int:
        """The index in `State.calls` of call k of turn t."""
        return t * self.calls + k


CALL, SECOND, BOTH, INLINE = Await((0,)), Await((1,)), Await((0, 1)), Inline((0,))
EACH = faults(crash=1, lose=1, dup=1, reap=1, stop=1, amb=1, silent=1)

C1 = Config("C1", "2 turns (call; none), every fault once", (0, 0), ((CALL,), ()), calls=1, faults=EACH)
C2 = Config("C2", "1 turn, 2 parallel calls, every fault once", (0,), ((BOTH,),), calls=2, faults=EACH)
C3 = Config("C3", "1 turn, 2 calls in sequence, every fault once", (0,), ((CALL, SECOND),), calls=2, faults=EACH)
C4 = Config(
    "C4",
    "2 turns, an inline effect; 2 crashes, 2 premature reaps",
    (0, 0),
    ((INLINE,), ()),
    calls=1,
    recoveries_max=2,
    faults=faults(crash=2, lose=1, reap=2, stop=1, amb=1),
)
C5 = replace(C2, name="C5", about="as C2, resumed by each result (streaming join)", is_streaming=True)
C6 = Config(
    "C6",
    "2 agents, 3 turns (call; none | call), crash, lost bell, reap, stop",
    (0, 0, 1),
    ((CALL,), (), (CALL,)),
    calls=1,
    faults=faults(crash=1, lose=1, reap=1, stop=1),
)
C7 = Config(
    "C7",
    "3 turns (call; inline; none), 2 crashes, 2 reaps, other faults once",
    (0, 0, 0),
    ((CALL,), (INLINE,), ()),
    calls=1,
    recoveries_max=2,
    faults=faults(crash=2, dup=1, reap=2, amb=1, silent=1),
)
# Two critics, and an editor that is woken when both have ended (by themselves or by the kernel).
R1 = Config(
    "R1",
    "a run: 2 critics, editor when both are in; crash, lost bell, reap, lost reply",
    agents=(0, 1, 2),
    scripts=((), (), ()),
    starts=(0, 1),
    wakes=((2, 0b011),),
    faults=faults(crash=1, lose=1, reap=1, amb=1),
)
R2 = replace(R1, name="R2", about="as R1; crash, 2 stops, lost reply", faults=faults(crash=1, stop=2, amb=1))
R3 = replace(
    R1,
    name="R3",
    about="as R1, a client joins a turn on the editor's agent; crash, stop",
    agents=(0, 1, 2, 2),
    scripts=((), (), (), ()),
    joins=(3,),
    faults=faults(crash=1, stop=1),
)
R4 = replace(R1, name="R4", about="as R1, no second attempt (a lost lease ends the turn)", recoveries_max=0)
R5 = replace(
    R1,
    name="R5",
    about="as R1, one critic suspends on a call; reap, stop, lost reply",
    scripts=((CALL,), (), ()),
    calls=1,
    faults=faults(reap=1, stop=1, amb=1),
)

# C6 and C7 with smaller budgets: the long ones have 6.4 million states between them.
C6S = replace(C6, name="C6s", about="as C6; crash, stop", faults=faults(crash=1, stop=1))
C7S = replace(C7, name="C7s", about="as C7; 2 crashes, 1 reap, lost reply", faults=faults(crash=2, reap=1, amb=1))
CONFIGS = (C1, C2, C3, C4, C5, C6S, C7S, R1, R2, R3, R4, R5)
FULL = (C1, C2, C3, C4, C5, C6, C7, R1, R2, R3, R4, R5)
QUICK = (
    replace(
        C1, name="C1q", about="as C1; crash, lost bell, stop, lost reply", faults=faults(crash=1, lose=1, stop=1, amb=1)
    ),
    replace(C3, name="C3q", about="as C3; reap, duplicate, silent tool", faults=faults(reap=1, dup=1, silent=1)),
    replace(C4, name="C4q", about="as C4; 1 crash, 1 reap", recoveries_max=1, faults=faults(crash=1, reap=1)),
    replace(C5, name="C5q", about="as C5; crash, duplicate", faults=faults(crash=1, dup=1)),
    replace(R1, name="R1q", about="as R1; crash, lost reply", faults=faults(crash=1, amb=1)),
    replace(R2, name="R2q", about="as R2; 2 stops, lost reply", faults=faults(stop=2, amb=1)),
    replace(R3, name="R3q", about="as R3; no fault", faults=faults()),
)
