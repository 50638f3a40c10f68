"""People answer the questions of turns, and turns expire: the time that a turn waits for people does not count (K19b, K19c)."""

from __future__ import annotations

from model.checker import PEOPLE, SYSTEM, TTL
from model.configs import Config
from model.kernel import Draft
from model.state import DISPATCHED, OPEN, STOPPING, SUSPENDED, State, Steps

EXPIRED = "a turn expires while it waits for people"


def human_answers(cfg: Config, s: State) -> Steps:
    """A person answers an open question. No turn of a run that is ending may need the answer in order to end."""
    kind = SYSTEM if s.run.status == STOPPING else PEOPLE
    for t, k in cfg.human_calls:
        if s.calls[cfg.call(t, k)].wait == OPEN:
            d = Draft(cfg, s)
            d.report(t, k)
            yield d.commit(kind, f"person: answers t{t}, k{k}")


def expire(cfg: Config, s: State) -> Steps:
    """K19: a turn past its time to live ends, whatever its state, unless it waits for people.

    Here only in the states that nothing else gets it out of: a running one loses its lease, a queued one is dispatched,
    and expiry in those is the transaction of `stop`, which has a budget. So nothing is missed, and the graph is small.
    """
    if not cfg.rules.ttl or not cfg.rules.atomic_finish:
        return
    for head in s.heads:
        t = head.turn
        if head.status not in (DISPATCHED, SUSPENDED) or s.turns[t].waits_for_humans:
            continue
        d = Draft(cfg, s)
        if cfg.rules.human_waits_below and head.status == SUSPENDED and is_deferred(d, t):
            d.change_turn(t, waits_for_humans=True)
            yield d.commit(TTL, f"watchdog: t{t} is past its time, and a turn below it waits for people -> kept")
            continue
        if cfg.human_calls and needs_humans(d, t):
            d.broken.append(EXPIRED)
        d.end_turn_by_kernel(t)
        yield d.commit(TTL, f"watchdog: t{t} has expired -> failed deliverable")


def is_deferred(d: Draft, t: int) -> bool:
    """K19c: no tool is awaited, and a turn below has `waits_for_humans`."""
    waited = d.waited(t)
    return all(d.cfg.child(t, k) >= 0 or (t, k) in d.cfg.human_calls for k in waited) and has_human_wait_below(d, t)


def has_human_wait_below(d: Draft, t: int) -> bool:
    for child in children(d, t):
        if d.turns[child].waits_for_humans or (is_suspended(d, child) and has_human_wait_below(d, child)):
            return True
    return False


def needs_humans(d: Draft, t: int) -> bool:
    """The property, which looks at the waits alone: only a person can let this turn, or one that it waits for, go on."""
    waited = d.waited(t)
    if d.run.status == STOPPING or not is_suspended(d, t) or not waited:
        return False
    if any(d.cfg.child(t, k) < 0 and (t, k) not in d.cfg.human_calls for k in waited):
        return False
    below = children(d, t)
    return not below or any(needs_humans(d, child) for child in below)


def children(d: Draft, t: int) -> list[int]:
    """The turns that turn t waits for."""
    return [child for k in d.waited(t) if (child := d.cfg.child(t, k)) >= 0]


def is_suspended(d: Draft, t: int) -> bool:
    head = d.heads[d.cfg.agents[t]]
    return head.turn == t and head.status == SUSPENDED
