"""The state of the model, and what a kernel function does to it inside one transaction.

A state is a tuple of tuples, so that it can be a key. A step thaws it into a `Draft`, changes the draft by the helpers
below and freezes it again: everything between thaw and freeze is one transaction. What is not modelled is in README.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from model.checker import Transition
from model.configs import Config, Fault

IDLE, DISPATCHED, RUNNING, SUSPENDED = "idle", "dispatched", "running", "suspended"
UNBORN, INSERTED, QUEUED, ACTIVE, DONE, REFUSED = range(6)  # INSERTED: not committed (K9 off); REFUSED: run had ended
NO_WAIT, OPEN, RESOLVED = range(3)
NONE_YET, LIVE, ENDED = range(3)
MANY = 2  # counters stop here: two is already too many


class Head(NamedTuple):
    status: str
    turn: int  # -1: none
    epoch: int


class Turn(NamedTuple):
    status: int
    deliverables: int
    events: int
    recoveries: int


class Call(NamedTuple):
    """A tool call: its wait row (for an inline call: its intent), and what is under way outside the database."""

    wait: int
    commands: int  # on their way to the tool
    effects: int  # how often the tool really did it
    reports: int  # on their way back
    epoch: int  # at issue; only kept when K5 is off


class Worker(NamedTuple):
    """What one worker believes. `seen`: what it read of the run, see `read_run`."""

    doing: str
    agent: int
    turn: int
    epoch: int
    step: int = -1
    seen: tuple[int, ...] = ()


class Handler(NamedTuple):
    """A stop handler or reaper half way through; only exists when K1 or K12 is off."""

    doing: str
    agent: int
    turn: int


class Run(NamedTuple):
    """A run. `reacted` and `woken` are its reactive state, written whole (as the JSON column is); sets are bit masks."""

    status: int
    version: int
    open: int
    owed: int  # turns whose ending still owes a reaction
    reacted: int  # turns whose ending the reactive state knows
    woken: int  # turns that reactions have enqueued
    ends: int  # workflow:end signals


class State(NamedTuple):
    heads: tuple[Head, ...]
    turns: tuple[Turn, ...]
    calls: tuple[Call, ...]
    bells: tuple[int, ...]
    workers: tuple[Worker, ...]
    handler: Handler
    run: Run
    faults: tuple[int, ...]  # how many of each may still happen


Step = Transition[State]
Steps = Iterator[Step]

NOBODY = Worker("idle", -1, -1, -1)
NO_HANDLER = Handler("idle", -1, -1)
NO_RUN = Run(NONE_YET, 0, 0, 0, 0, 0, 0)


def owns(s: State, w: Worker) -> bool:
    """The owner gate: is (turn, epoch) of this worker what the head says is running?"""
    return s.heads[w.agent] == (RUNNING, w.turn, w.epoch)


def next_step(cfg: Config, s: State, t: int) -> int:
    """The index of the first step of the turn's script that has a call not resolved; -1 when only the finish is left."""
    for at, step in enumerate(cfg.scripts[t]):
        if any(s.calls[cfg.call(t, k)].wait != RESOLVED for k in step.calls):
            return at
    return -1


def read_run(s: State) -> tuple[int, ...]:
    """What a reaction is computed from: version, reacted, woken, owed, open. One statement (K24b)."""
    return (s.run.version, s.run.reacted, s.run.woken, s.run.owed, s.run.open)


class Draft:
    """A state being changed by one transaction. `broken` collects the properties that the transaction violates."""

    __slots__ = ("bells", "broken", "calls", "cfg", "faults", "handler", "heads", "run", "turns", "workers")

    def __init__(self, cfg: Config, s: State) -> None:
        self.cfg = cfg
        self.heads, self.turns, self.calls = list(s.heads), list(s.turns), list(s.calls)
        self.bells, self.workers, self.faults = list(s.bells), list(s.workers), list(s.faults)
        self.handler, self.run = s.handler, s.run
        self.broken: list[str] = []

    def commit(self, kind: str, label: str) -> Step:
        workers = tuple(sorted(self.workers)) if self.cfg.is_symmetric else tuple(self.workers)
        state = State(
            tuple(self.heads),
            tuple(self.turns),
            tuple(self.calls),
            tuple(self.bells),
            workers,
            self.handler,
            self.run,
            tuple(self.faults),
        )
        return label, kind, state, tuple(self.broken)

    def spend(self, fault: Fault) -> None:
        self.faults[fault] -= 1

    # -- one agent

    def insert_turn(self, t: int) -> None:
        self.turns[t] = Turn(QUEUED, 0, 0, 0)

    def dispatch(self, a: int) -> None:
        """Give an idle head its first queued turn: epoch + 1, ring. Otherwise do nothing."""
        head = self.heads[a]
        if head.status != IDLE:
            return
        for t in self.cfg.turns_of[a]:
            if self.turns[t].status == QUEUED:
                self.turns[t] = self.turns[t]._replace(status=ACTIVE)
                self.ready(a, t, head.epoch + 1)
                return

    def ready(self, a: int, t: int, epoch: int) -> None:
        self.heads[a] = Head(DISPATCHED, t, epoch)
        self.bells[a] = 1

    def write_deliverable(self, t: int) -> None:
        turn = self.turns[t]
        if turn.deliverables:
            self.broken.append("two deliverables")
        self.turns[t] = turn._replace(deliverables=min(MANY, turn.deliverables + 1))

    def write_event(self, t: int) -> None:
        turn = self.turns[t]
        if turn.events:
            self.broken.append("two task events")
        self.turns[t] = turn._replace(events=min(MANY, turn.events + 1))

    def end_turn(self, t: int) -> None:
        """`_terminal` of kernel.md (K1): deliverable, event, done, waits closed, head idle, next turn dispatched."""
        a = self.cfg.agents[t]
        self.write_deliverable(t)
        self.write_event(t)
        self.turns[t] = self.turns[t]._replace(status=DONE)
        for k in self.open_calls(t):
            self.resolve_wait(t, k)
        if self.heads[a].turn == t:
            self.heads[a] = Head(IDLE, -1, self.heads[a].epoch + 1)
        if self.cfg.rules.chain_dispatch:
            self.dispatch(a)

    def end_turn_by_kernel(self, t: int) -> None:
        """Stop, expiry, attempts exhausted: nobody is there to react, so the run is left owing it (K25)."""
        self.end_turn(t)
        rules, run = self.cfg.rules, self.run
        if self.cfg.starts:
            owed = run.owed | 1 << t if rules.owed_reaction else run.owed
            self.run = run._replace(open=run.open - 1, owed=owed, version=run.version + rules.changes_bump)

    # -- the waits of one turn

    def open_calls(self, t: int) -> list[int]:
        return [k for k in range(self.cfg.calls) if self.calls[self.cfg.call(t, k)].wait == OPEN]

    def resolve_wait(self, t: int, k: int) -> None:
        at = self.cfg.call(t, k)
        self.calls[at] = self.calls[at]._replace(wait=RESOLVED)

    def report(self, t: int, k: int) -> None:
        """`report`, and the timeout sweep through it (K4): open -> resolved, and perhaps suspended -> dispatched."""
        rules, a = self.cfg.rules, self.cfg.agents[t]
        head = self.heads[a]
        if self.calls[self.cfg.call(t, k)].wait == OPEN:
            self.resolve_wait(t, k)
            if head.turn == t and head.status == SUSPENDED:
                left = self.open_calls(t)
                if left and rules.resume_when_all and not self.cfg.is_streaming:
                    return
                if left and not self.cfg.is_streaming:
                    self.broken.append("resumed with an open wait")
                self.ready(a, t, head.epoch)
        elif not rules.report_by_wait and head.turn == t and head.status in (SUSPENDED, RUNNING):
            self.broken.append("resumed without a matching wait")
            self.ready(a, t, head.epoch)

    # -- the run

    def react(self, seen: tuple[int, ...], finished: int) -> None:
        """Commit the reaction to endings, computed from `seen`. `finished`: the turn that this transaction ends, or -1
        for a sweep, which reacts to all that is owed. The caller has compared the version (K24).

        Only what is computed from `seen` is the reaction: state, wakes, whether the run ends. So "compute, then commit"
        are the two steps *read* and *this*, with anything in between.
        """
        _, reacted, woken, owed, was_open = seen
        rules, run = self.cfg.rules, self.run
        is_sweep = finished < 0
        reacted |= owed if is_sweep else 1 << finished
        wakes = [t for t, needs in self.cfg.wakes if needs & ~reacted == 0 and not woken >> t & 1]
        more = len(wakes) - (not is_sweep)
        is_owed = not is_sweep and owed > 0 and rules.end_sees_owed
        self.run = Run(
            run.status,
            run.version + 1,
            (run.open if rules.count_locked else was_open) + more,
            0 if is_sweep else run.owed,  # an equal version means that nothing became owed since
            reacted,
            woken | sum(1 << t for t in wakes),
            run.ends,
        )
        for t in wakes:
            self.wake(t)
        if was_open + more == 0 and not is_owed:
            self.end_run()

    def wake(self, t: int) -> None:
        if self.turns[t].status != UNBORN:
            self.broken.append("a turn is woken twice")
        else:
            self.insert_turn(t)
            self.dispatch(self.cfg.agents[t])

    def end_run(self) -> None:
        """K26: the only way a run ends; with it goes the single workflow:end."""
        if self.run.ends:
            self.broken.append("the run ends twice")
        self.run = self.run._replace(status=ENDED, ends=min(MANY, self.run.ends + 1))
