"""The effects of kernel functions on heads, turns and waits, each in one transaction. `runs.py` has those on runs.

A step thaws a state into a `Draft`, changes it by the helpers below and freezes it again: everything between thaw and
freeze is one transaction. README.md lists the parts that are not modelled.
"""

from __future__ import annotations

from typing import Any

from model.configs import Config, Fault
from model.state import (
    ACTIVE,
    DISPATCHED,
    DONE,
    DUE,
    IDLE,
    MANY,
    NO_WAIT,
    OPEN,
    QUEUED,
    RESOLVED,
    RUNNING,
    STOPPING,
    SUSPENDED,
    TRUE,
    Head,
    State,
    Step,
    Turn,
)


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

    def change_turn(self, t: int, **fields: Any) -> None:
        self.turns[t] = self.turns[t]._replace(**fields)

    # -- one agent

    def insert_turn(self, t: int) -> None:
        if self.run.is_stopped:
            self.broken.append("a turn comes into a run that is being stopped")
        self.turns[t] = Turn(QUEUED)

    def dispatch(self, a: int) -> None:
        """Give an idle head its first queued turn: epoch + 1, ring. Otherwise do nothing."""
        head = self.heads[a]
        if head.status != IDLE:
            return
        for t in self.cfg.turns_of[a]:
            if self.turns[t].status == QUEUED:
                self.change_turn(t, status=ACTIVE)
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
        """`_terminal` (K1, K33): deliverable, event, done, waits closed, head idle, next turn; rows for parent, children."""
        a = self.cfg.agents[t]
        self.write_deliverable(t)
        self.write_event(t)
        self.change_turn(t, status=DONE, waits_for_humans=False, is_poison=False)
        if t in self.cfg.parents and self.cfg.rules.report_row:
            self.change_turn(t, report=DUE)
        for k in range(self.cfg.calls):
            self.close_wait(t, k)
        if self.heads[a].turn == t:
            self.heads[a] = Head(IDLE, -1, self.heads[a].epoch + 1)
        if self.cfg.rules.chain_dispatch:
            self.dispatch(a)

    def end_turn_by_kernel(self, t: int) -> None:
        """Stop, expiry, attempts exhausted: no worker reacts in this commit, so the reaction stays pending (K25)."""
        self.end_turn(t)
        rules, run = self.cfg.rules, self.run
        if self.cfg.starts:
            pending = run.pending | 1 << t if rules.pending_reaction else run.pending
            self.run = run._replace(open=run.open - 1, pending=pending, version=run.version + rules.changes_bump)

    def redispatch(self, t: int, *, is_rung: bool) -> str:
        """Recovery, release and deferral: dispatch the turn under the next epoch (K7), or end it if a stop order waits
        (K31), unless its terminate phase can still run."""
        a = self.cfg.agents[t]
        stop = self.heads[a].stop and self.cfg.rules.stop_holds
        if stop and not self.terminates(t):
            self.end_turn_by_kernel(t)
            return "a stop waits: canceled deliverable"
        bell = self.bells[a]
        self.ready(a, t, self.heads[a].epoch + self.cfg.rules.bump_on_recover)
        self.heads[a] = self.heads[a]._replace(stop=stop)
        if not is_rung:
            self.bells[a] = bell
        return f"dispatched, epoch {self.heads[a].epoch}"

    def terminates(self, t: int) -> bool:
        """Whether a stop lets a worker run the terminate phase of the turn: an owner has stored the flag when it recorded an inline
        call, which stands for the end of a phase, or when it released the turn."""
        cfg = self.cfg
        waits = [self.calls[cfg.call(t, k)].wait for k in range(cfg.calls)]
        is_stored = any(wait == RESOLVED if k in cfg.inline[t] else wait != NO_WAIT for k, wait in enumerate(waits))
        return cfg.terminates and (self.turns[t].defer_count > 0 or is_stored)

    # -- the waits of one turn

    def waited(self, t: int) -> list[int]:
        """The open calls that another party answers: not the inline ones (K30b), which belong to the owner."""
        cfg = self.cfg
        apart = cfg.inline[t] if cfg.rules.inline_apart else ()
        return [k for k in range(cfg.calls) if self.calls[cfg.call(t, k)].wait == OPEN and k not in apart]

    def open_wait(self, t: int, k: int, epoch: int) -> bool:
        """A wait row, and its command or its child; an early report is applied at once (K28). False: the row exists."""
        at = self.cfg.call(t, k)
        call = self.calls[at]
        if call.wait != NO_WAIT:
            return False
        child = self.cfg.child(t, k)
        if call.early & TRUE or (call.early and not self.cfg.rules.early_by_token):
            if not call.early & TRUE:
                self.broken.append("a forged result is applied")
            self.calls[at] = call._replace(wait=RESOLVED, early=0)
        elif child < 0:
            commands = call.commands if (t, k) in self.cfg.human_calls else min(MANY, call.commands + 1)
            self.calls[at] = call._replace(wait=OPEN, early=0, commands=commands, epoch=epoch)
        else:
            self.calls[at] = call._replace(wait=OPEN)
            self.insert_turn(child)
            self.dispatch(self.cfg.agents[child])
            if self.cfg.starts:
                run = self.run
                self.run = run._replace(open=run.open + 1, version=run.version + self.cfg.rules.changes_bump)
        return True

    def wait_for_humans(self, t: int) -> None:
        """K19b: of a suspended turn. Where only people can answer, its time to live stops; not in a run that is ending."""
        rules, waited = self.cfg.rules, self.waited(t)
        is_ending = self.run.status == STOPPING and rules.ending_counts
        if (
            rules.human_waits_exempt
            and waited
            and all((t, k) in self.cfg.human_calls for k in waited)
            and not is_ending
        ):
            self.change_turn(t, waits_for_humans=True)

    def resume(self, t: int) -> None:
        """Suspended -> dispatched, the same epoch; its time to live passes again (K19b)."""
        if self.turns[t].waits_for_humans and self.cfg.rules.human_waits_cleared:
            self.change_turn(t, waits_for_humans=False)
        a = self.cfg.agents[t]
        self.ready(a, t, self.heads[a].epoch)

    def resolve_wait(self, t: int, k: int) -> None:
        at = self.cfg.call(t, k)
        self.calls[at] = self.calls[at]._replace(wait=RESOLVED)

    def close_wait(self, t: int, k: int) -> None:
        """The turn has ended: what was kept for this call goes, and its child is abandoned."""
        at = self.cfg.call(t, k)
        call = self.calls[at]
        if call.wait == OPEN:
            self.calls[at] = call._replace(wait=RESOLVED)
            self.abandon(t, k)
        elif call.early:
            self.calls[at] = call._replace(early=0)

    def abandon(self, t: int, k: int) -> None:
        """Order a stop of the open child of a call that no turn awaits any more (K33b)."""
        child = self.cfg.child(t, k)
        if child >= 0 and self.turns[child].status != DONE and self.cfg.rules.stop_rows:
            self.change_turn(child, stop=DUE)

    def report(self, t: int, k: int) -> None:
        """`report`, and the timeout sweep through it (K4): open -> resolved, and perhaps suspended -> dispatched."""
        rules, a = self.cfg.rules, self.cfg.agents[t]
        head = self.heads[a]
        if self.calls[self.cfg.call(t, k)].wait == OPEN:
            self.resolve_wait(t, k)
            if head.turn == t and head.status == SUSPENDED:
                self.heads[a] = head._replace(waits=head.waits - 1)
                if head.waits > 1 and rules.resume_when_all and not self.cfg.is_streaming:
                    if rules.human_waits_rechecked:
                        self.wait_for_humans(t)
                    return
                if self.waited(t) and not self.cfg.is_streaming:
                    self.broken.append("resumed with an open wait")
                self.resume(t)
        elif not rules.report_by_wait and head.turn == t and head.status in (SUSPENDED, RUNNING):
            self.broken.append("resumed without a matching wait")
            self.ready(a, t, head.epoch)
