"""Dispatched turns that no worker claims: none comes in time (K19e), or the claim of this turn raises an error (K23)."""

from __future__ import annotations

from model.checker import FAULT, TTL
from model.configs import Config, Fault
from model.kernel import Draft
from model.state import DISPATCHED, NO_HANDLER, Handler, State, Step, Steps, Worker
from model.worker_steps import move, replies, settle

HEALTHY = "a turn that can be claimed ends as unclaimable"


def end_unclaimed(cfg: Config, s: State) -> Steps:
    """K19e: the dispatch timeout. Time is a choice. The status is read under the lock under which the turn ends."""
    if not cfg.is_dispatch_timed or not cfg.rules.unclaimed_ends:
        return
    for a, head in enumerate(s.heads):
        if head.status != DISPATCHED:
            continue
        d = Draft(cfg, s)
        if cfg.rules.unclaimed_locked:
            d.end_turn_by_kernel(head.turn)
            yield d.commit(TTL, f"watchdog: no worker claimed t{head.turn} in time -> failed deliverable")
        elif s.handler == NO_HANDLER:
            d.handler = Handler("unclaimed", a, head.turn)
            yield d.commit(TTL, f"watchdog: reads that no worker has claimed t{head.turn}")


def poison(cfg: Config, s: State) -> Steps:
    """The results that a dispatched turn holds become too large for the answer of a claim."""
    if not s.faults[Fault.POISON]:
        return
    for head in s.heads:
        if head.status == DISPATCHED and not s.turns[head.turn].is_poison:
            d = Draft(cfg, s)
            d.spend(Fault.POISON)
            d.change_turn(head.turn, is_poison=True)
            yield d.commit(FAULT, f"FAULT: no claim can send what t{head.turn} holds")


def claim_raises(cfg: Config, s: State, i: int, w: Worker) -> Step:
    """K23: the worker then asks the kernel to end the turn. With the rule off it logs the error, and waits for a bell."""
    then = Worker("unclaimable", w.agent, -1, -1) if cfg.rules.unclaimable_ends else Worker("idle", -1, -1, -1)
    return move(cfg, s, i, then, f"claim(a{w.agent}) -> error")


def fail_unclaimable(cfg: Config, s: State, i: int, w: Worker) -> Steps:
    """End the turn that claim takes next, if claim raises for it now: the head may hold another one meanwhile."""
    head, then = s.heads[w.agent], Worker("claim", w.agent, -1, -1)
    is_poison = head.status == DISPATCHED and s.turns[head.turn].is_poison
    if head.status != DISPATCHED or (cfg.rules.unclaimable_rechecked and not is_poison):
        yield move(cfg, s, i, then, f"fail_unclaimable(a{w.agent}) -> nothing")
        return
    for is_lost in replies(s):
        d = Draft(cfg, s)
        d.end_turn_by_kernel(head.turn)
        if not is_poison:
            d.broken.append(HEALTHY)
        yield settle(
            d, i, then, is_lost=is_lost, what=f"fail_unclaimable(a{w.agent}) -> t{head.turn}, failed deliverable"
        )
