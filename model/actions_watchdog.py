"""The watchdog: bells, queued turns, overdue waits, lost leases, expired turns. One candidate per transaction (K17)."""

from __future__ import annotations

from model.actions_ablated import handler_steps, reap_in_parts
from model.checker import FAULT, TTL, WATCHDOG
from model.configs import Config, Fault
from model.kernel import ACTIVE, DISPATCHED, IDLE, OPEN, QUEUED, RUNNING, SUSPENDED, Draft, Head, State, Steps


def watchdog(cfg: Config, s: State) -> Steps:
    for a, head in enumerate(s.heads):
        yield from ring(cfg, s, a, head)
        if head.status == RUNNING:
            yield from recover(cfg, s, a, head)
    yield from time_out(cfg, s)
    yield from expire(cfg, s)
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
    is_owed = any(s.turns[t].status == QUEUED for t in cfg.turns_of[a])
    if head.status == IDLE and is_owed and cfg.rules.sweep_dispatches:
        d = Draft(cfg, s)
        d.dispatch(a)
        yield d.commit(WATCHDOG, f"sweep: dispatches a queued turn of a{a}")


def time_out(cfg: Config, s: State) -> Steps:
    """K11: a wait past its deadline is reported, by the same function as a result. Time is a choice here."""
    if not cfg.rules.sweep_timeouts:
        return
    for t, a in enumerate(cfg.agents):
        if s.turns[t].status != ACTIVE or s.heads[a].status != SUSPENDED:
            continue
        for k in range(cfg.calls):
            if s.calls[cfg.call(t, k)].wait == OPEN:
                d = Draft(cfg, s)
                d.report(t, k)
                yield d.commit(WATCHDOG, f"sweep: timeout(t{t}, k{k})")


def expire(cfg: Config, s: State) -> Steps:
    """K19: a turn past its time to live ends, whatever its state.

    Here only in the states that nothing else gets it out of: a running one loses its lease, a queued one is dispatched,
    and expiry in those is the transaction of `stop`, which has a budget. So nothing is missed, and the graph is small.
    """
    for head in s.heads:
        if head.status in (DISPATCHED, SUSPENDED) and cfg.rules.ttl and cfg.rules.atomic_finish:
            d = Draft(cfg, s)
            d.end_turn_by_kernel(head.turn)
            yield d.commit(TTL, f"watchdog: t{head.turn} has expired -> failed deliverable")


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
        d.turns[t] = turn._replace(recoveries=turn.recoveries + 1)
        d.ready(a, t, head.epoch + cfg.rules.bump_on_recover)
        yield d.commit(kind, f"watchdog: lease of t{t} is over ({who}) -> dispatched, epoch {d.heads[a].epoch}")
    elif cfg.rules.atomic_finish:
        d.end_turn_by_kernel(t)
        yield d.commit(kind, f"watchdog: attempts of t{t} are used up ({who}) -> failed deliverable")
    else:
        yield from reap_in_parts(s, d, a, t, kind)
