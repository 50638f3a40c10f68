"""The effects of a turn's end on other turns: rows of the outbox, each delivered later in its own transaction.

The end of a child is reported to its parent (K33), the end of a parent or of a run stops the turns below it (K33b, K35). Any worker's
sweep delivers. A second delivery has no effect, so the row may be marked late; that is the duplicate here.
"""

from __future__ import annotations

from model.actions_client import order_stop
from model.checker import FAULT, WATCHDOG
from model.configs import Config, Fault
from model.kernel import Draft
from model.state import DONE, DUE, NO_ROW, OPEN, SENT, State, Steps


def outbox(cfg: Config, s: State) -> Steps:
    for t, turn in enumerate(s.turns):
        if turn.report == DUE:
            yield from report_to_parent(cfg, s, t)
        if turn.stop == DUE:
            yield from stop(cfg, s, t)


def report_to_parent(cfg: Config, s: State, t: int) -> Steps:
    """K4: the parent's wait decides; a parent that is done or no longer waits only acknowledges the report."""
    parent, k = cfg.parents[t]
    is_open = s.calls[cfg.call(parent, k)].wait == OPEN
    what = f"report row of t{t} -> t{parent}, k{k}" + ("" if is_open else ": nobody waits")
    for is_marked in (True, False) if s.faults[Fault.DUPLICATE] and is_open else (True,):
        d = Draft(cfg, s)
        d.report(parent, k)
        if is_marked:
            d.change_turn(t, report=SENT)
            yield d.commit(WATCHDOG, f"sweep: {what}")
        else:
            d.spend(Fault.DUPLICATE)
            yield d.commit(FAULT, f"FAULT: {what}, the row is not marked")


def stop(cfg: Config, s: State, t: int) -> Steps:
    d = Draft(cfg, s)
    d.change_turn(t, stop=NO_ROW)
    what = "already done"
    if cfg.is_stop_graceful:
        what = order_stop(d, t)
    elif s.turns[t].status != DONE:
        d.end_turn_by_kernel(t)
        what = "canceled deliverable"
    yield d.commit(WATCHDOG, f"sweep: stop row of t{t} -> {what}")
