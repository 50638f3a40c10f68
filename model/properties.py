"""The properties: the invariants of a state, and the goals of liveness. `KernelModel` ties it all together."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from model.actions_client import client
from model.actions_humans import human_answers
from model.actions_tools import tools
from model.actions_unclaimed import poison
from model.actions_watchdog import watchdog
from model.actions_worker import workers
from model.configs import Config
from model.state import (
    ACTIVE,
    CLOSED,
    DISPATCHED,
    DONE,
    DUE,
    ENDED,
    IDLE,
    INSERTED,
    LIVE,
    NO_HANDLER,
    NOBODY,
    OPEN,
    QUEUED,
    REJECTED,
    RUNNING,
    STOPPING,
    SUSPENDED,
    UNBORN,
    State,
    Steps,
    initial,
    key,
    owns,
)


class KernelModel:
    """The kernel under one configuration, as `checker.Model`."""

    def __init__(self, cfg: Config) -> None:
        self.cfg = cfg

    def initial(self) -> State:
        return initial(self.cfg)

    def key(self, state: State) -> Hashable:
        return key(self.cfg, state)

    def successors(self, s: State) -> Steps:
        yield from client(self.cfg, s)
        yield from workers(self.cfg, s)
        yield from tools(self.cfg, s)
        yield from human_answers(self.cfg, s)
        yield from poison(self.cfg, s)
        yield from watchdog(self.cfg, s)

    def broken(self, s: State) -> Iterator[str]:
        """The safety invariants. Those about a whole ending make sense only while an ending is whole (K1)."""
        yield from self._broken_heads(s)
        if any(call.effects > 1 for call in s.calls):
            yield "a side effect is executed twice"
        if self.cfg.rules.atomic_finish:
            if any(turn.status == DONE and turn[1:3] != (1, 1) for turn in s.turns):
                yield "a turn ended without exactly one deliverable and event"
            if any(head.turn >= 0 and s.turns[head.turn].status != ACTIVE for head in s.heads):
                yield "a head holds a turn that is not active"
        yield from self._broken_stops(s)
        if self.cfg.starts:
            yield from self._broken_run(s)

    def _broken_heads(self, s: State) -> Iterator[str]:
        for a, head in enumerate(s.heads):
            if (head.status == IDLE) != (head.turn == -1):
                yield "an idle head has a turn, or a busy one has none"
            if sum(s.turns[t].status == ACTIVE for t in self.cfg.turns_of[a]) > 1:
                yield "two active turns on one agent"
            if sum(w.agent == a and owns(s, w) for w in s.workers) > 1:
                yield "two workers are valid owners of one turn"
            if head.status == SUSPENDED and head.waits != self._waits(s, head.turn):
                yield "the head miscounts its waits"
            if head.status != SUSPENDED and head.turn >= 0 and s.turns[head.turn].waits_for_humans:
                yield "the time of a turn that is not suspended does not pass"

    def _waits(self, s: State, t: int) -> int:
        cfg = self.cfg
        return sum(s.calls[cfg.call(t, k)].wait == OPEN for k in range(cfg.calls) if k not in cfg.inline[t])

    def _broken_stops(self, s: State) -> Iterator[str]:
        for t, turn in enumerate(s.turns):
            if turn.status not in (QUEUED, ACTIVE):
                continue
            head = s.heads[self.cfg.agents[t]]
            is_stopping = (
                head.turn == t
                and head.stop
                and (head.status == RUNNING or (head.status == DISPATCHED and self.cfg.terminates))
            )
            if turn.has_stop_order and not is_stopping:
                yield "a stop asked for is lost"
            if t in self.cfg.parents and not is_stopping and turn.stop != DUE:
                parent, k = self.cfg.parents[t]
                if s.calls[self.cfg.call(parent, k)].wait != OPEN:
                    yield "a child goes on, nobody waits for it"

    def _broken_run(self, s: State) -> Iterator[str]:
        run = s.run
        is_open = sum(turn.status in (QUEUED, ACTIVE) for turn in s.turns)
        if run.open != is_open:
            yield "the run miscounts its open turns"
        if run.status != ENDED:
            return
        if is_open:
            yield "the run has ended, a turn is open"
        if run.pending:
            yield "the run has ended, a reaction is pending"
        if not run.is_stopped and any(s.turns[t].status == UNBORN and self._is_met(s, t) for t, _ in self.cfg.wakes):
            yield "the run has ended, a turn was never woken"
        if self.cfg.is_session and not run.is_stopped and not run.reacted & self.cfg.closing:
            yield "an open session has ended"

    def _is_met(self, s: State, woken: int) -> bool:
        """Whether all endings that wake a turn have happened: a session that was closed rejects messages, which then never end."""
        happened = sum(1 << t for t, turn in enumerate(s.turns) if turn.status == DONE)
        happened |= (s.run.pending | s.run.reacted) & self.cfg.closing
        return all(needs & ~happened == 0 for t, needs in self.cfg.wakes if t == woken)

    def is_quiet(self, s: State) -> bool:
        """Every turn is over, the run has ended, nobody is busy, no bell rings, no row waits in the outbox."""
        return (
            all(self._is_over(s, t) for t in range(len(s.turns)))
            and self._is_still(s)
            and all(w == NOBODY for w in s.workers)
            and not any(s.bells)
            and (not self.cfg.starts or (s.run.status == ENDED and s.run.ends == 1))
        )

    def _is_waiting(self, s: State) -> bool:
        """An open session without a turn waits for messages."""
        return self.cfg.is_session and s.run.status == LIVE and s.run.open == 0

    def _is_over(self, s: State, t: int) -> bool:
        """Delivered; or rejected; or never born, because its parent is over, or its run was stopped before,
        or nothing that wakes it happened in a session."""
        turn = s.turns[t]
        if turn.status != UNBORN:
            return turn.status == REJECTED or (turn.status == DONE and turn.deliverables > 0 and turn.events > 0)
        if t in self.cfg.parents:
            return self._is_over(s, self.cfg.parents[t][0])
        is_woken = any(t == woken for woken, _ in self.cfg.wakes)
        return is_woken and (s.run.is_stopped or (s.run.status == ENDED and not self._is_met(s, t)))

    def _is_still(self, s: State) -> bool:
        return (
            all(head.status == IDLE for head in s.heads)
            and not any(DUE in (turn.report, turn.stop) for turn in s.turns)
            and s.handler == NO_HANDLER
        )

    def is_abandoned(self, s: State) -> bool:
        return all(w == NOBODY for w in s.workers)

    def is_settled(self, s: State) -> bool:
        """Every turn that a client committed is delivered. A run may still have pending reactions: those need a worker."""
        return (
            all(turn.status in (UNBORN, INSERTED) or self._is_over(s, t) for t, turn in enumerate(s.turns))
            and self._is_still(s)
            and (s.run.status not in (LIVE, CLOSED, STOPPING) or s.run.pending > 0 or self._is_waiting(s))
        )
