"""Clients: enqueue a turn, start a run, join a turn to a run, close a session, stop a turn or a run. Each is one transaction."""

from __future__ import annotations

from model.actions_ablated import act_unlocked, enqueue_unlocked, join_unlocked, stop_by_message
from model.checker import FAULT, SYSTEM
from model.configs import Config, Fault
from model.kernel import Draft
from model.state import (
    ACTIVE,
    CLOSED,
    DONE,
    DUE,
    IDLE,
    INSERTED,
    LIVE,
    NONE_YET,
    QUEUED,
    REJECTED,
    RUNNING,
    STOPPING,
    SUSPENDED,
    UNBORN,
    WORKING,
    State,
    Steps,
)


def client(cfg: Config, s: State) -> Steps:
    yield from start(cfg, s)
    yield from close(cfg, s)
    yield from stop_run(cfg, s)
    for t in range(len(cfg.agents)):
        status = s.turns[t].status
        if status in (UNBORN, INSERTED):
            if t in cfg.joins:
                yield from join(cfg, s, t)
            elif t in cfg.actions:
                yield from act(cfg, s, t)
            elif not cfg.starts and t not in cfg.parents:
                yield from enqueue(cfg, s, t)
        elif status in (QUEUED, ACTIVE):
            if s.faults[Fault.STOP]:
                yield from stop(cfg, s, t)
            if s.faults[Fault.GRACEFUL]:
                yield from stop_gracefully(cfg, s, t)


def enqueue(cfg: Config, s: State, t: int) -> Steps:
    """K9: lock the head, insert the turn, dispatch it if the head is idle. The turns of an agent come in their order."""
    a = cfg.agents[t]
    before = (other for other in cfg.turns_of[a] if other < t and other not in (*cfg.actions, *cfg.parents))
    if not cfg.rules.enqueue_locks:
        yield from enqueue_unlocked(cfg, s, t)
    elif all(s.turns[other].status != UNBORN for other in before):
        d = Draft(cfg, s)
        d.insert_turn(t)
        d.dispatch(a)
        yield d.commit(SYSTEM, f"client: enqueue(t{t})")


def act(cfg: Config, s: State, t: int) -> Steps:
    """K36: a ui_action takes an idle head under its lock, without a queue; a busy head rejects it."""
    a = cfg.agents[t]
    d = Draft(cfg, s)
    if not cfg.rules.action_locks:
        yield from act_unlocked(cfg, s, t)
    elif s.heads[a].status == IDLE:
        d.insert_turn(t)
        d.change_turn(t, status=ACTIVE)
        d.ready(a, t, s.heads[a].epoch + 1)
        yield d.commit(SYSTEM, f"client: ui_action(t{t}) -> dispatched")
    else:
        d.change_turn(t, status=REJECTED)
        yield d.commit(SYSTEM, f"client: ui_action(t{t}) -> busy, abandoned")


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
    """K27, K27b, K35: enqueue into a run, which is locked: rejected when it has ended or is being stopped, else open + 1."""
    if s.run.status == NONE_YET:
        return
    if not cfg.rules.join_locked:
        yield from join_unlocked(cfg, s, t)
        return
    d = Draft(cfg, s)
    if s.run.status != LIVE and (s.run.status != STOPPING or cfg.rules.stopping_closed):
        d.change_turn(t, status=REJECTED)
        yield d.commit(SYSTEM, f"client: join(t{t}) -> rejected, the run is over")
        return
    d.run = d.run._replace(open=d.run.open + 1, version=d.run.version + cfg.rules.changes_bump)
    d.insert_turn(t)
    d.dispatch(cfg.agents[t])
    yield d.commit(SYSTEM, f"client: join(t{t}), open {d.run.open}")


def close(cfg: Config, s: State) -> Steps:
    """K38: the session takes no more messages. Its signal has a pending reaction, which ends the run if no turn is open."""
    if not cfg.is_session or s.run.status != LIVE:
        return
    d = Draft(cfg, s)
    pending = s.run.pending | (cfg.closing if cfg.rules.close_reacts else 0)
    d.run = d.run._replace(status=CLOSED, pending=pending, version=s.run.version + cfg.rules.changes_bump)
    yield d.commit(SYSTEM, "client: close the session")


def stop(cfg: Config, s: State, t: int) -> Steps:
    """K12: queued or active, the turn ends here, with deliverable and event."""
    if not cfg.rules.stop_in_kernel:
        yield from stop_by_message(cfg, s, t)
        return
    d = Draft(cfg, s)
    d.spend(Fault.STOP)
    d.end_turn_by_kernel(t)
    yield d.commit(FAULT, f"client: stop(t{t})")


def stop_gracefully(cfg: Config, s: State, t: int) -> Steps:
    d = Draft(cfg, s)
    d.spend(Fault.GRACEFUL)
    what = order_stop(d, t)
    yield d.commit(FAULT, f"client: stop(t{t}, gracefully) -> {what}")


def order_stop(d: Draft, t: int) -> str:
    """K31: the head of a running turn stores the stop order, and that of one that has waited and terminates: a worker can
    claim it then. Any other turn has nothing in flight and ends at once."""
    a = d.cfg.agents[t]
    if d.turns[t].status == DONE:
        return "already done"
    if d.heads[a].turn != t or (d.heads[a].status != RUNNING and not d.terminates(t)):
        d.end_turn_by_kernel(t)
        return "canceled deliverable"
    if d.heads[a].status == SUSPENDED:
        d.resume(t)
    d.heads[a] = d.heads[a]._replace(stop=True)
    d.change_turn(t, has_stop_order=True)
    return "its owner has a stop order"


def stop_run(cfg: Config, s: State) -> Steps:
    """K35: the run accepts no more turns; each open turn gets a stop row. The version rises: reactions depend on the status. K38c: a session
    without a turn gets a pending reaction, which ends it."""
    if s.run.status not in WORKING or not s.faults[Fault.STOP_RUN]:
        return
    d = Draft(cfg, s)
    d.spend(Fault.STOP_RUN)
    is_idle = cfg.is_session and s.run.open == 0 and cfg.rules.stop_reacts
    pending = s.run.pending | (cfg.closing if is_idle else 0)
    version = s.run.version + cfg.rules.changes_bump
    d.run = d.run._replace(status=STOPPING, is_stopped=True, version=version, pending=pending)
    for t, turn in enumerate(s.turns):
        if turn.status in (QUEUED, ACTIVE):
            d.change_turn(t, stop=DUE)
    yield d.commit(FAULT, "client: stop the run")
