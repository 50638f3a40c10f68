"""Clients: enqueue a turn, start a run, join a turn to a run, stop a turn. Each is one transaction."""

from __future__ import annotations

from model.actions_ablated import enqueue_unlocked, join_unlocked, stop_by_message
from model.checker import FAULT, SYSTEM
from model.configs import Config, Fault
from model.kernel import ACTIVE, DONE, ENDED, INSERTED, LIVE, NONE_YET, QUEUED, REFUSED, UNBORN, Draft, State, Steps


def client(cfg: Config, s: State) -> Steps:
    yield from start(cfg, s)
    for t in range(len(cfg.agents)):
        status = s.turns[t].status
        if status in (UNBORN, INSERTED):
            if t in cfg.joins:
                yield from join(cfg, s, t)
            elif not cfg.starts:
                yield from enqueue(cfg, s, t)
        elif status not in (DONE, REFUSED) and s.faults[Fault.STOP]:
            yield from stop(cfg, s, t)


def enqueue(cfg: Config, s: State, t: int) -> Steps:
    """K9: lock the head, insert the turn, dispatch it if the head is idle. The turns of an agent come in their order."""
    a = cfg.agents[t]
    if not cfg.rules.enqueue_locks:
        yield from enqueue_unlocked(cfg, s, t)
    elif all(s.turns[before].status != UNBORN for before in cfg.turns_of[a] if before < t):
        d = Draft(cfg, s)
        d.insert_turn(t)
        d.dispatch(a)
        yield d.commit(SYSTEM, f"client: enqueue(t{t})")


def start(cfg: Config, s: State) -> Steps:
    """The run and the turns that open it, in one transaction."""
    if not cfg.starts or s.run.status != NONE_YET:
        return
    d = Draft(cfg, s)
    d.run = d.run._replace(status=LIVE, open=len(cfg.starts))
    for t in cfg.starts:
        d.insert_turn(t)
        d.dispatch(cfg.agents[t])
    yield d.commit(SYSTEM, f"client: start the run with {', '.join(f't{t}' for t in cfg.starts)}")


def join(cfg: Config, s: State, t: int) -> Steps:
    """K27, K27b: enqueue into a run, which is locked: refused when it has ended, else open + 1."""
    if s.run.status == NONE_YET:
        return
    if not cfg.rules.join_locked:
        yield from join_unlocked(cfg, s, t)
        return
    d = Draft(cfg, s)
    if s.run.status == ENDED:
        d.turns[t] = d.turns[t]._replace(status=REFUSED)
        yield d.commit(SYSTEM, f"client: join(t{t}) -> refused, the run has ended")
        return
    d.run = d.run._replace(open=d.run.open + 1, version=d.run.version + cfg.rules.changes_bump)
    d.insert_turn(t)
    d.dispatch(cfg.agents[t])
    yield d.commit(SYSTEM, f"client: join(t{t}), open {d.run.open}")


def stop(cfg: Config, s: State, t: int) -> Steps:
    """K12: queued or active, the turn ends here, with deliverable and event."""
    if s.turns[t].status not in (QUEUED, ACTIVE):
        return
    if not cfg.rules.stop_in_kernel:
        yield from stop_by_message(cfg, s, t)
        return
    d = Draft(cfg, s)
    d.spend(Fault.STOP)
    d.end_turn_by_kernel(t)
    yield d.commit(FAULT, f"client: stop(t{t})")
