"""The sweeps: bells, queued turns, overdue waits, lost leases, stops past their grace, expired turns, rows for other turns.

One candidate per transaction (K17).
"""

from __future__ import annotations

from model.actions_ablated import handler_steps, reap_in_parts
from model.actions_humans import expire
from model.actions_outbox import outbox
from model.actions_unclaimed import end_unclaimed
from model.checker import FAULT, WATCHDOG
from model.configs import Config, Fault
from model.kernel import Draft
from model.state import ACTIVE, DISPATCHED, IDLE, OPEN, QUEUED, RUNNING, SUSPENDED, Head, State, Steps, owns


def watchdog(cfg: Config, s: State) -> Steps:
    for a, head in enumerate(s.heads):
        yield from ring(cfg, s, a, head)
        if head.status == RUNNING:
            yield from recover(cfg, s, a, head)
            yield from force(cfg, s, head)
        elif head.status == SUSPENDED:
            yield from unstick(cfg, s, head)
    yield from time_out(cfg, s)
    yield from outbox(cfg, s)
    yield from expire(cfg, s)
    yield from end_unclaimed(cfg, s)
    yield from handler_steps(cfg, s)


def ring(cfg: Config, s: State, a: int, head: Head) -> Steps:
    """K10, K10b, and the bell that is lost."""
    if s.bells[a] and s.faults[Fault.LOSE]:
        d = Draft(cfg, s)
        d.spend(Fault.LOSE)
        d.bells[a] = 0
        yield d.commit(FAULT, f"FAULT: the bell of a{a} is lost")
    if head.status == DISPATCHED and not s.bells[a] and cfg.rules.sweep_rings:
        d = Draft(cfg, s)
        d.bells[a] = 1
        yield d.commit(WATCHDOG, f"sweep: rings for a{a}")
    is_pending = any(s.turns[t].status == QUEUED for t in cfg.turns_of[a])
    if head.status == IDLE and is_pending and cfg.rules.sweep_dispatches:
        d = Draft(cfg, s)
        d.dispatch(a)
        yield d.commit(WATCHDOG, f"sweep: dispatches a queued turn of a{a}")


def time_out(cfg: Config, s: State) -> Steps:
    """K11: a wait past its deadline is reported, by the same function as a result. Time is a choice here.

    A child that nobody waits for any more is stopped (K33b). An inline call has no deadline of the kernel's (K30c).
    """
    if not cfg.rules.sweep_timeouts:
        return
    for t, turn in enumerate(s.turns):
        if turn.status != ACTIVE:
            continue
        for k in range(cfg.calls):
            is_untimed = (cfg.child(t, k) >= 0 and not cfg.is_child_timed) or (
                (k in cfg.inline[t] and cfg.rules.inline_untimed) or (t, k) in cfg.human_calls
            )
            if s.calls[cfg.call(t, k)].wait != OPEN or is_untimed:
                continue
            d = Draft(cfg, s)
            if k in cfg.inline[t] and any(w.turn == t and owns(s, w) for w in s.workers):
                d.broken.append("a result is dropped")
            d.abandon(t, k)
            d.report(t, k)
            yield d.commit(WATCHDOG, f"sweep: timeout(t{t}, k{k})")


def unstick(cfg: Config, s: State, head: Head) -> Steps:
    """K10c: suspended without an open call that will get a result."""
    d = Draft(cfg, s)
    if cfg.rules.sweep_stuck and not d.waited(head.turn):
        d.resume(head.turn)
        yield d.commit(WATCHDOG, f"sweep: t{head.turn} waits for nothing -> dispatched")


def force(cfg: Config, s: State, head: Head) -> Steps:
    """K31b: a stop past its grace. Time is a choice here too."""
    if head.stop and cfg.rules.sweep_stops:
        d = Draft(cfg, s)
        d.end_turn_by_kernel(head.turn)
        yield d.commit(WATCHDOG, f"sweep: the grace of t{head.turn} is over -> canceled deliverable")


def recover(cfg: Config, s: State, a: int, head: Head) -> Steps:
    """K7: the lease has run out: dispatched again under the next epoch, or ended when the attempts are used up.

    With its owner dead this is what the watchdog is for; with its owner alive (slow, paused) it is a fault.
    """
    is_alive = any((w.agent, w.turn, w.epoch) == (a, head.turn, head.epoch) for w in s.workers)
    if is_alive and not s.faults[Fault.REAP]:
        return
    t, turn = head.turn, s.turns[head.turn]
    d = Draft(cfg, s)
    if is_alive:
        d.spend(Fault.REAP)
    kind, who = (FAULT, "owner ALIVE") if is_alive else (WATCHDOG, "owner dead")
    if turn.recoveries < cfg.recoveries_max:
        d.change_turn(t, recoveries=turn.recoveries + 1)
        what = d.redispatch(t, is_rung=True)
        yield d.commit(kind, f"watchdog: lease of t{t} is over ({who}) -> {what}")
    elif cfg.rules.atomic_finish:
        d.end_turn_by_kernel(t)
        yield d.commit(kind, f"watchdog: attempts of t{t} are used up ({who}) -> failed deliverable")
    else:
        yield from reap_in_parts(s, d, a, t, kind)
