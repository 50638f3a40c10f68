"""The state of the model: the rows, the messages under way, and the beliefs of each worker.

A state is a tuple of tuples, so that it can be a key. Two states that differ only in how high the epochs and the run's
version are behave alike: every rule compares these for equality, and they only rise. `key` makes them one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple, Protocol

from model.checker import Transition
from model.configs import Config

IDLE, DISPATCHED, RUNNING, SUSPENDED = "idle", "dispatched", "running", "suspended"
UNBORN, INSERTED, QUEUED, ACTIVE, DONE, REJECTED = range(
    6
)  # INSERTED: not committed (K9 off); REJECTED: busy, or no run
NO_WAIT, OPEN, RESOLVED = range(3)
NO_ROW, DUE, SENT = range(3)  # a row of the outbox
NONE_YET, LIVE, STOPPING, ENDED, CLOSED = range(5)  # CLOSED: a session that takes no more messages
WORKING = (LIVE, CLOSED)  # its signals wake agents
TRUE, FORGED = 1, 2  # early reports that are kept: whose token they carry
MANY = 2  # counters stop here: two is already too many


class Head(NamedTuple):
    status: str
    turn: int  # -1: none
    epoch: int
    stop: bool = False  # a graceful stop waits, and its force_at
    waits: int = 0  # waiting_tool_count


class Turn(NamedTuple):
    status: int
    deliverables: int = 0
    events: int = 0
    recoveries: int = 0
    defer_count: int = 0
    report: int = NO_ROW  # the outbox row that reports to its parent
    stop: int = NO_ROW  # the outbox row that stops it
    has_stop_order: bool = False  # its owner receives the stop order
    waits_for_humans: bool = False  # human_wait_since is set: its time to live does not pass
    is_poison: bool = False  # its claim raises an error


class Call(NamedTuple):
    """A call: its wait row (for an inline call: its intent), and what is under way outside the database."""

    wait: int = NO_WAIT
    commands: int = 0  # on their way to the tool
    effects: int = 0  # how often the tool really did it
    reports: int = 0  # on their way back
    early: int = 0  # reports kept for a call that is not open yet: TRUE, FORGED, both
    epoch: int = 0  # at issue; only kept for inline calls, and when K5 is off


class Worker(NamedTuple):
    """The beliefs of one worker. `results_seen`: a mask of the calls whose results it has; `seen`: the run, see `read_run`."""

    doing: str
    agent: int
    turn: int
    epoch: int
    step: int = -1
    results_seen: int = 0
    seen: tuple[int, ...] = ()


class Handler(NamedTuple):
    """A stop handler, reaper or sweep half way through; only exists when K1, K12 or K19e is off."""

    doing: str
    agent: int
    turn: int


class Run(NamedTuple):
    """A run. `reacted` and `woken` are its reactive state, written whole (as the JSON column is); sets are bit masks."""

    status: int
    version: int
    open: int
    pending: int  # turns whose ending has a pending reaction; `closing`: that of the close of a session
    reacted: int  # turns whose ending the reactive state includes; `closing` as above
    woken: int  # turns that reactions have enqueued
    ends: int  # workflow:end signals
    is_stopped: bool = False  # its end was requested


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


def initial(cfg: Config) -> State:
    agents, turns = len(cfg.turns_of), len(cfg.agents)
    return State(
        (Head(IDLE, -1, 0),) * agents,
        (Turn(UNBORN),) * turns,
        (Call(),) * (turns * cfg.calls),
        (0,) * agents,
        (NOBODY,) * cfg.workers,
        NO_HANDLER,
        NO_RUN,
        cfg.faults,
    )


def key(cfg: Config, s: State) -> Hashable:
    """The state without the height of epochs and versions: what of each belief is left is whether it is still true."""
    rules, heads, run = cfg.rules, s.heads, s.run
    if not rules.report_by_call:
        return s  # the calls of tools keep epochs as well
    is_guarded = rules.version_guard and rules.whole_read  # then nobody looks into what was read at another version
    calls: tuple[Hashable, ...] = s.calls
    if cfg.has_inline:
        calls = tuple(
            (*call[:-1], call.epoch == heads[cfg.agents[at // cfg.calls]].epoch) for at, call in enumerate(s.calls)
        )
    workers = []
    for doing, agent, turn, epoch, step, results_seen, seen in s.workers:
        view: tuple[int, ...] = ()
        if seen:
            is_present = seen[0] == run.version
            view = (is_present, *seen[1:]) if is_present or not is_guarded else (False,)
        workers.append((doing, agent, turn, epoch == heads[agent].epoch, step, results_seen, view))
    return (
        tuple([(head.status, head.turn, head.stop, head.waits) for head in heads]),
        s.turns,
        calls,
        s.bells,
        tuple(workers),
        s.handler,
        (run.status, *run[2:]),
        s.faults,
    )


def owns(s: State, w: Worker) -> bool:
    """The owner gate: does the head run the (turn, epoch) of this worker?"""
    return s.heads[w.agent][:3] == (RUNNING, w.turn, w.epoch)


class Rows(Protocol):
    """A state, or one that a transaction is changing."""

    @property
    def calls(self) -> Sequence[Call]: ...
    @property
    def run(self) -> Run: ...


def resolved(cfg: Config, s: Rows, t: int) -> int:
    """The calls of turn t that have a result, as a mask: claim and suspend return it to the owner."""
    return sum(1 << k for k in range(cfg.calls) if s.calls[cfg.call(t, k)].wait == RESOLVED)


def next_step(cfg: Config, w: Worker) -> int:
    """The first step with a call whose result this worker has not received; -1: only the finish remains.

    With `is_any` one result is enough for a step.
    """
    for at, step in enumerate(cfg.scripts[w.turn]):
        known = [w.results_seen >> k & 1 for k in step.calls]
        if not (any(known) if cfg.is_any else all(known)):
            return at
    return -1


def read_run(s: Rows) -> tuple[int, ...]:
    """The input of a reaction: version, reacted, woken, pending, open, status. One statement (K24b)."""
    return (s.run.version, s.run.reacted, s.run.woken, s.run.pending, s.run.open, s.run.status)
