"""Forbidden paths of the kernel, which exist only while a rule is switched off.

They follow the protocol that the rule replaces (card, state and event as three commits; the command published before
the suspension; stop as a message), so that an ablation shows the damage and not an artefact.
"""

from __future__ import annotations

from collections.abc import Callable

from model.checker import FAULT, SYSTEM, WATCHDOG
from model.configs import Config, Fault
from model.kernel import Draft
from model.state import (
    ACTIVE,
    DISPATCHED,
    DONE,
    IDLE,
    INSERTED,
    LIVE,
    MANY,
    NO_HANDLER,
    NOBODY,
    QUEUED,
    SUSPENDED,
    UNBORN,
    Handler,
    Head,
    State,
    Step,
    Steps,
    Worker,
    owns,
)


def enqueue_unlocked(cfg: Config, s: State, t: int) -> Steps:
    """K9 off: the head is read without a lock, and decided upon before the insert commits."""
    a = cfg.agents[t]
    d = Draft(cfg, s)
    if s.turns[t].status == INSERTED:
        d.insert_turn(t)
        yield d.commit(SYSTEM, f"client: enqueue(t{t}) commits, without dispatch")
    elif any(s.turns[before].status == UNBORN for before in cfg.turns_of[a] if before < t):
        return
    elif s.heads[a].status == IDLE:
        d.insert_turn(t)
        d.dispatch(a)
        yield d.commit(SYSTEM, f"client: enqueue(t{t}) sees an idle head, dispatches, commits")
    else:
        d.turns[t] = d.turns[t]._replace(status=INSERTED)
        yield d.commit(SYSTEM, f"client: enqueue(t{t}) sees a busy head, inserts, has not committed")


def join_unlocked(cfg: Config, s: State, t: int) -> Steps:
    """K27b off: the status of the run is read first, the turn inserted in a later step."""
    d = Draft(cfg, s)
    if s.turns[t].status == INSERTED:
        d.insert_turn(t)
        d.run = d.run._replace(open=d.run.open + 1, version=d.run.version + 1)
        d.dispatch(cfg.agents[t])
        yield d.commit(SYSTEM, f"client: join(t{t}) commits")
    elif s.run.status == LIVE:
        d.turns[t] = d.turns[t]._replace(status=INSERTED)
        yield d.commit(SYSTEM, f"client: join(t{t}) reads that the run is open")


def act_unlocked(cfg: Config, s: State, t: int) -> Steps:
    """K36 off: the head is read without a lock, and taken in a later step."""
    a = cfg.agents[t]
    d = Draft(cfg, s)
    if s.turns[t].status == INSERTED:
        d.insert_turn(t)
        d.change_turn(t, status=ACTIVE)
        d.ready(a, t, s.heads[a].epoch + 1)
        yield d.commit(SYSTEM, f"client: ui_action(t{t}) takes the head")
    elif s.heads[a].status == IDLE:
        d.change_turn(t, status=INSERTED)
        yield d.commit(SYSTEM, f"client: ui_action(t{t}) reads that the head is idle")


def stop_by_message(cfg: Config, s: State, t: int) -> Steps:
    """K12 off: a queued turn is just marked; an active one is ended by a handler, card first."""
    d = Draft(cfg, s)
    d.spend(Fault.STOP)
    if s.turns[t].status == QUEUED:
        d.turns[t] = d.turns[t]._replace(status=DONE)
        yield d.commit(FAULT, f"client: stop(t{t}) marks the queued turn, no deliverable")
    elif s.handler == NO_HANDLER:
        d.write_deliverable(t)
        d.handler = Handler("state", cfg.agents[t], t)
        yield d.commit(FAULT, f"stop handler: writes the deliverable of t{t}")


def reap_in_parts(s: State, d: Draft, a: int, t: int, kind: str) -> Steps:
    """K1 off: the reaper frees the head first; deliverable and event follow."""
    if s.handler != NO_HANDLER:
        return
    d.turns[t] = d.turns[t]._replace(status=DONE)
    d.heads[a] = Head(IDLE, -1, d.heads[a].epoch + 1)
    d.handler = Handler("card", a, t)
    yield d.commit(kind, f"reaper: t{t} -> idle")


def handler_steps(cfg: Config, s: State) -> Steps:
    """K1, K12 or K19e off: what a reaper, a stop handler or a sweep still has to do, one commit each."""
    doing, a, t = s.handler
    if doing == "idle":
        return
    if s.faults[Fault.CRASH]:
        d = Draft(cfg, s)
        d.spend(Fault.CRASH)
        d.handler = NO_HANDLER
        yield d.commit(FAULT, f"FAULT: the handler of t{t} crashes before {doing}")
    d = Draft(cfg, s)
    d.handler = NO_HANDLER
    kind = WATCHDOG
    if doing == "unclaimed":
        if d.turns[t].status == ACTIVE:
            if s.heads[a].status != DISPATCHED:
                d.broken.append("a turn that was claimed ends as unclaimed")
            d.end_turn_by_kernel(t)
    elif doing == "state":
        kind = SYSTEM
        if s.heads[a].turn == t:
            d.turns[t] = d.turns[t]._replace(status=DONE)
            d.heads[a] = Head(IDLE, -1, s.heads[a].epoch + 1)
            d.handler = Handler("event", a, t)
    elif doing == "card":
        d.write_deliverable(t)
        d.handler = Handler("event", a, t)
    elif doing == "event":
        d.write_event(t)
        d.handler = Handler("dispatch", a, t)
    else:
        d.dispatch(a)
    yield d.commit(kind, f"handler: {doing} of t{t}")


def append_ungated(cfg: Config, s: State, i: int, w: Worker) -> Step:
    """K2 off: a card without the owner gate. Leaves no trace in the state; only its staleness matters."""
    d = Draft(cfg, s)
    if not owns(s, w):
        d.broken.append("a stale owner writes a card")
    return d.commit(SYSTEM, f"w{i}: appends a card to t{w.turn}, epoch {w.epoch}, ungated")


def publish_first(cfg: Config, s: State, i: int, w: Worker, at: int) -> Step:
    """K3 off: the commands leave before there is a wait for their results."""
    d = Draft(cfg, s)
    for k in cfg.scripts[w.turn][at].calls:
        c = cfg.call(w.turn, k)
        d.calls[c] = d.calls[c]._replace(commands=min(MANY, d.calls[c].commands + 1))
    if not owns(s, w):
        d.broken.append("a stale owner starts a side effect")
    d.workers[i] = w._replace(doing="published", step=at)
    return d.commit(SYSTEM, f"w{i}: publishes the commands of t{w.turn} before it suspends")


def suspend_published(cfg: Config, s: State, i: int, w: Worker) -> Steps:
    d = Draft(cfg, s)
    d.workers[i] = NOBODY
    if owns(s, w):
        for k in cfg.scripts[w.turn][w.step].calls:
            c = cfg.call(w.turn, k)
            d.open_wait(w.turn, k, w.epoch)
            d.calls[c] = d.calls[c]._replace(commands=s.calls[c].commands)
        d.heads[w.agent] = Head(SUSPENDED, w.turn, w.epoch, waits=len(d.waited(w.turn)))
        d.workers[i] = Worker("claim", w.agent, -1, -1)
    yield d.commit(SYSTEM, f"w{i}: suspends t{w.turn}")


def write_card_first(cfg: Config, s: State, i: int, w: Worker) -> Steps:
    """K1 off: the deliverable card has a commit of its own, with no gate."""
    d = Draft(cfg, s)
    d.write_deliverable(w.turn)
    if not owns(s, w):
        d.broken.append("a stale owner writes a card")
    d.workers[i] = w._replace(doing="state")
    yield d.commit(SYSTEM, f"w{i}: writes the deliverable of t{w.turn}, epoch {w.epoch}")


def finish_parts(cfg: Config, s: State, i: int, w: Worker) -> Steps:
    """K1 off: then the state, then the event, then the next turn."""
    d = Draft(cfg, s)
    if w.doing == "state":
        d.workers[i] = NOBODY
        if owns(s, w):
            d.turns[w.turn] = d.turns[w.turn]._replace(status=DONE)
            d.heads[w.agent] = Head(IDLE, -1, w.epoch)
            d.workers[i] = w._replace(doing="event")
    elif w.doing == "event":
        d.write_event(w.turn)
        d.workers[i] = w._replace(doing="dispatch")
    else:
        d.dispatch(w.agent)
        d.workers[i] = Worker("claim", w.agent, -1, -1)
    yield d.commit(SYSTEM, f"w{i}: {w.doing} of t{w.turn}")


def read_version_last(cfg: Config, s: State, i: int, w: Worker) -> Steps:
    """K24b off: what the reaction is computed from was read by one statement, the version by a later one."""
    d = Draft(cfg, s)
    d.workers[i] = w._replace(doing="react", seen=(s.run.version, *w.seen[1:]))
    yield d.commit(SYSTEM, f"w{i}: sweep reads the version {s.run.version}, after the state")


def report_by_worker(cfg: Config, s: State, i: int, w: Worker) -> Steps:
    """K33 off: the worker reports to the parent after its commit; it may crash before."""
    d = Draft(cfg, s)
    d.report(*cfg.parents[w.turn])
    d.workers[i] = NOBODY
    yield d.commit(SYSTEM, f"w{i}: reports to the parent of t{w.turn}")


PARTS: dict[str, Callable[[Config, State, int, Worker], Steps]] = {
    "published": suspend_published,
    "state": finish_parts,
    "event": finish_parts,
    "dispatch": finish_parts,
    "read version": read_version_last,
    "report to parent": report_by_worker,
}
