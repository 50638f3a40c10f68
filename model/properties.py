"""What must hold: the invariants of a state, and the goals of liveness. `KernelModel` ties it all together."""

from __future__ import annotations

from collections.abc import Iterator

from model.actions_client import client
from model.actions_tools import tools
from model.actions_watchdog import watchdog
from model.actions_worker import workers
from model.configs import Config
from model.kernel import (
    ACTIVE,
    DONE,
    ENDED,
    IDLE,
    INSERTED,
    LIVE,
    NO_HANDLER,
    NO_RUN,
    NO_WAIT,
    NOBODY,
    QUEUED,
    REFUSED,
    UNBORN,
    Call,
    Head,
    State,
    Steps,
    Turn,
    owns,
)


class KernelModel:
    """The kernel under one configuration, as `checker.Model`."""

    def __init__(self, cfg: Config) -> None:
        self.cfg = cfg

    def initial(self) -> State:
        cfg = self.cfg
        agents, turns = len(cfg.turns_of), len(cfg.agents)
        return State(
            (Head(IDLE, -1, 0),) * agents,
            (Turn(UNBORN, 0, 0, 0),) * turns,
            (Call(NO_WAIT, 0, 0, 0, 0),) * (turns * cfg.calls),
            (0,) * agents,
            (NOBODY,) * cfg.workers,
            NO_HANDLER,
            NO_RUN,
            cfg.faults,
        )

    def successors(self, s: State) -> Steps:
        yield from client(self.cfg, s)
        yield from workers(self.cfg, s)
        yield from tools(self.cfg, s)
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

    def _broken_run(self, s: State) -> Iterator[str]:
        run = s.run
        is_open = sum(turn.status in (QUEUED, ACTIVE) for turn in s.turns)
        if run.open != is_open:
            yield "the run miscounts its open turns"
        if run.status != ENDED:
            return
        if is_open:
            yield "the run has ended, a turn is open"
        if run.owed:
            yield "the run has ended, a reaction is owed"
        if any(s.turns[t].status == UNBORN for t, _ in self.cfg.wakes):
            yield "the run has ended, a turn was never woken"

    def is_quiet(self, s: State) -> bool:
        """Every turn is delivered (or was refused), the run has ended, nobody is busy, no bell rings."""
        return (
            all(
                (turn.status == DONE and turn.deliverables > 0 and turn.events > 0) or turn.status == REFUSED
                for turn in s.turns
            )
            and all(head.status == IDLE for head in s.heads)
            and all(w == NOBODY for w in s.workers)
            and not any(s.bells)
            and s.handler == NO_HANDLER
            and (not self.cfg.starts or (s.run.status == ENDED and s.run.ends == 1))
        )

    def is_abandoned(self, s: State) -> bool:
        return all(w == NOBODY for w in s.workers)

    def is_settled(self, s: State) -> bool:
        """Every turn that a client committed is delivered. A run may still owe reactions: those need a worker."""
        return (
            all(
                turn.status in (UNBORN, INSERTED, REFUSED)
                or (turn.status == DONE and turn.deliverables > 0 and turn.events > 0)
                for turn in s.turns
            )
            and all(head.status == IDLE for head in s.heads)
            and s.handler == NO_HANDLER
            and (s.run.status != LIVE or s.run.owed > 0)
        )
