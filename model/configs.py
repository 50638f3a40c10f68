"""The shape of a configuration: its processes, the work of its turns, and the possible faults. `cases.py` has them all."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property

from model.rules import Rules


class Fault(IntEnum):
    """Indexes of the fault budget."""

    CRASH = 0  # a worker (or half-done handler) forgets everything
    LOSE = 1  # a doorbell is lost
    DUPLICATE = 2  # a command or a report arrives twice
    REAP = 3  # the lease of a live worker is taken away
    STOP = 4  # a user stops a turn, at once
    AMBIGUOUS = 5  # a commit happened, its reply is lost, the caller retries
    SILENT = 6  # a tool never answers
    GRACEFUL = 7  # a user stops a turn gracefully
    HANG = 8  # the owner of a turn that is to stop never looks, and renews its lease
    DEFER = 9  # an owner puts its turn off
    RELEASE = 10  # an owner hands its turn back
    EARLY = 11  # a result comes before the turn opens its call
    FORGE = 12  # a program without the token reports an early result
    STOP_RUN = 13  # a user stops the run
    POISON = 14  # a dispatched turn holds more than a claim can send


def faults(
    *,
    crash: int = 0,
    lose: int = 0,
    dup: int = 0,
    reap: int = 0,
    stop: int = 0,
    amb: int = 0,
    silent: int = 0,
    graceful: int = 0,
    hang: int = 0,
    defer: int = 0,
    release: int = 0,
    early: int = 0,
    forge: int = 0,
    stop_run: int = 0,
    poison: int = 0,
) -> tuple[int, ...]:
    """A budget: how often each `Fault` may happen on one path."""
    return (crash, lose, dup, reap, stop, amb, silent, graceful, hang, defer, release, early, forge, stop_run, poison)


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
    """One model: its actors, the work of its turns, how often each fault may happen, and the rules in force.

    `agents[t]` is the agent of turn t, `scripts[t]` its steps. A run exists when `starts` is not empty: one transaction
    starts it with those turns, `wakes` are the reactions (turn, mask of the endings that it needs), `joins` are
    turns that a client enqueues into the run later. `children` are delegations (turn, call, turn of the child); such a
    call has no deadline, unless `is_child_timed`. `actions` are the turns that are a ui_action. `human_calls` are the calls
    (turn, call) that ask a person; they have no deadline.
    """

    name: str
    about: str
    agents: tuple[int, ...]
    scripts: tuple[tuple[Await | Inline, ...], ...]
    calls: int = 0
    workers: int = 2
    recoveries_max: int = 1
    deferrals_max: int = 1
    faults: tuple[int, ...] = faults()
    is_streaming: bool = False  # resumed by each result
    is_any: bool = False  # one result is enough for a step
    is_deduped: bool = False  # the tool dedupes by call id
    is_fickle: bool = False  # a new owner may go past an inline call that was left open
    terminates: bool = False  # a graceful stop of a turn that has waited lets a worker run its terminate phase
    is_down: bool = False  # a model that is away: owners can only defer
    is_symmetric: bool = True
    claims_next: bool = False  # a finish may claim the next turn in the same transaction
    ends_together: bool = False  # a call may end two turns of the run, whose workers are tasks of one process
    starts: tuple[int, ...] = ()
    wakes: tuple[tuple[int, int], ...] = ()
    joins: tuple[int, ...] = ()
    children: tuple[tuple[int, int, int], ...] = ()
    is_child_timed: bool = False
    is_stop_graceful: bool = False  # the mode of the stops that the outbox delivers
    actions: tuple[int, ...] = ()
    human_calls: tuple[tuple[int, int], ...] = ()
    is_dispatch_timed: bool = False  # the project has a dispatch timeout
    activations_max: int = 0  # the activation limit of the run; 0: none
    goal: int = 0  # the endings that meet the run's end_when; 0: none
    is_session: bool = False  # the run waits for messages, its `joins`, until a client closes it
    rules: Rules = field(default_factory=Rules)

    @cached_property
    def turns_of(self) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(t for t, owner in enumerate(self.agents) if owner == a) for a in range(max(self.agents) + 1))

    @property
    def closing(self) -> int:
        """The bit of the close among the endings to which a run reacts."""
        return 1 << len(self.agents)

    @cached_property
    def parents(self) -> dict[int, tuple[int, int]]:
        """By child: its parent, and the call that it answers."""
        return {child: (t, k) for t, k, child in self.children}

    @cached_property
    def _children(self) -> dict[tuple[int, int], int]:
        return {(t, k): child for t, k, child in self.children}

    def child(self, t: int, k: int) -> int:
        """The turn that call k of turn t delegates to; -1: it is a tool."""
        return self._children.get((t, k), -1)

    @cached_property
    def inline(self) -> tuple[tuple[int, ...], ...]:
        """By turn: the calls that its owner makes itself."""
        return tuple(tuple(k for s in script if isinstance(s, Inline) for k in s.calls) for script in self.scripts)

    @cached_property
    def has_inline(self) -> bool:
        return any(self.inline)

    def call(self, t: int, k: int) -> int:
        """The index in `State.calls` of call k of turn t."""
        return t * self.calls + k
